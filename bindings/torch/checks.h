// Checks that the collectives of torch have in common. All throw ValueError in Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensors.h"

namespace mccl_torch {

using Counts = std::vector<std::size_t>;

/// Throws unless the numbers are equal. `what` says which elements are counted.
void require_elements(const char* call, const char* what, std::int64_t expected,
                      std::int64_t found);

/// Returns the only list, which must hold one tensor per rank.
std::vector<at::Tensor>& require_list(const char* call, std::vector<std::vector<at::Tensor>>& lists,
                                      std::size_t expected, const char* role);

void require_pairs(const char* call, std::size_t outputs, std::size_t inputs);

/// Returns `in`, or a copy of it if `out` overlaps it and does not start at its element `slot`.
mccl::ConstBuffer readable_beside(TensorStaging& staging, mccl::ConstBuffer in, mccl::Buffer out,
                                  std::size_t slot);

std::size_t sum_before(const Counts& counts, int rank);

}  // namespace mccl_torch
