// Checks and helpers that several of torch's collectives use. A check that fails raises ValueError
// in Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensors.h"

namespace mccl_torch {

using Counts = std::vector<std::size_t>;

/// Throws if the numbers of elements differ. `what` names the counted elements in the message.
void require_elements(const char* call, const char* what, std::int64_t expected,
                      std::int64_t found);

/// Returns the only list of `lists`, which must hold `expected` tensors: one per rank. `role` is
/// "input" or "output", for the message.
std::vector<at::Tensor>& require_list(const char* call, std::vector<std::vector<at::Tensor>>& lists,
                                      std::size_t expected, const char* role);

void require_pairs(const char* call, std::size_t outputs, std::size_t inputs);

/// Returns `in`, or a copy if `out` overlaps `in`. Makes no copy if `out` starts at element `slot`
/// of `in`.
mccl::ConstBuffer readable_beside(TensorStaging& staging, mccl::ConstBuffer in, mccl::Buffer out,
                                  std::size_t slot);

std::size_t sum_before(const Counts& counts, int rank);

}  // namespace mccl_torch
