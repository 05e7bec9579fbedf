#include "kernels/metal/source.h"

namespace mccl::kernels::metal {

std::string kernel_for(DType dtype, ReduceKind kind) {
  if (dtype != DType::f16 && dtype != DType::bf16) return {};
  std::string name;
  switch (kind) {
    case ReduceKind::sum:
    case ReduceKind::avg:
    case ReduceKind::premul_sum:
      name = "mccl_sum_";
      break;
    case ReduceKind::product:
      name = "mccl_product_";
      break;
    case ReduceKind::min:
      name = "mccl_min_";
      break;
    case ReduceKind::max:
      name = "mccl_max_";
      break;
    default:
      return {};
  }
  return name + (dtype == DType::f16 ? "f16" : "bf16");
}

}  // namespace mccl::kernels::metal
