#include "mccl/types.h"

#include <cstddef>
#include <span>

namespace mccl {
namespace {

constexpr std::string_view kDTypes[kDTypeCount] = {"bool", "u8",  "i8",  "u16", "i16",
                                                   "u32",  "i32", "u64", "i64", "f16",
                                                   "bf16", "f32", "f64", "c64", "c128"};
constexpr std::string_view kReduceKinds[kReduceKindCount] = {
    "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"};
constexpr std::string_view kCollectives[kCollectiveCount] = {
    "all_reduce",     "broadcast",  "reduce",  "all_gather", "gather", "scatter",
    "reduce_scatter", "all_to_all", "barrier", "send",       "recv"};

/// Returns the name of `value`, or `otherwise` if the enum has no such value.
template <typename Value>
std::string_view name_in(std::span<const std::string_view> names, Value value,
                         std::string_view otherwise) {
  const auto index = static_cast<std::size_t>(value);
  return index < names.size() ? names[index] : otherwise;
}

}  // namespace

std::string_view name_of(DType dtype) { return name_in(kDTypes, dtype, "unknown dtype"); }
std::string_view name_of(ReduceKind kind) {
  return name_in(kReduceKinds, kind, "unknown reduction");
}
std::string_view name_of(Collective collective) {
  return name_in(kCollectives, collective, "unknown collective");
}

}  // namespace mccl
