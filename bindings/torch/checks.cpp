#include "checks.h"

#include <c10/util/Exception.h>

#include <numeric>

namespace mccl_torch {

void require_elements(const char* call, const char* what, std::int64_t expected,
                      std::int64_t found) {
  if (expected == found) return;
  invalid_argument(call, c10::str("invalid tensor size: ", what, " (expected ", expected,
                                  " elements, got ", found, ")"));
}

std::vector<at::Tensor>& require_list(const char* call, std::vector<std::vector<at::Tensor>>& lists,
                                      std::size_t expected, const char* role) {
  if (lists.size() != 1) {
    invalid_argument(call, c10::str("requires a single-element ", role,
                                    " list that contains a "
                                    "list with ",
                                    expected, " tensors (got ", lists.size(), " lists)"));
  }
  if (lists.front().size() != expected) {
    invalid_argument(call, c10::str("Incorrect ", role, " list size ", lists.front().size(),
                                    ": expected one tensor per rank, ", expected));
  }
  return lists.front();
}

void require_pairs(const char* call, std::size_t outputs, std::size_t inputs) {
  if (outputs == inputs && outputs != 0) return;
  invalid_argument(call, c10::str("requires as many outputs as inputs and at least one (got ",
                                  outputs, " outputs and ", inputs, " inputs)"));
}

mccl::ConstBuffer readable_beside(TensorStaging& staging, mccl::ConstBuffer in, mccl::Buffer out,
                                  std::size_t slot) {
  const bool own_slot =
      out.data == static_cast<const char*>(in.data) + slot * mccl::size_of(in.dtype);
  return own_slot ? in : staging.apart_from(in, out);
}

std::size_t sum_before(const Counts& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
}

}  // namespace mccl_torch
