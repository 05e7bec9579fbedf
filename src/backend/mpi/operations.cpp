#include "backend/mpi/operations.h"

#include <array>
#include <optional>
#include <utility>

#include "kernels/reduce.h"

namespace mccl::mpi {
namespace {

/// Function that MPI calls with two operands of `length` elements. The result replaces the second.
/// DType and kind are template parameters, since MPI passes only its own element type.
template <int dtype, int kind>
void combine(void* in, void* in_and_out, int* length, void*) {
  kernels::reduce(static_cast<DType>(dtype), static_cast<ReduceKind>(kind), in, in_and_out,
                  in_and_out, static_cast<std::size_t>(*length));
}

using Combine = void (*)(void*, void*, int*, void*);

template <int dtype, int... kinds>
constexpr std::array<Combine, kReduceKindCount> row(std::integer_sequence<int, kinds...>) {
  return {combine<dtype, kinds>...};
}

template <int... dtypes>
constexpr auto table(std::integer_sequence<int, dtypes...>) {
  return std::array{row<dtypes>(std::make_integer_sequence<int, kReduceKindCount>())...};
}

constexpr auto kCombine = table(std::make_integer_sequence<int, kDTypeCount>());

/// Returns MPI's operation that gives the same result as the kernel, if there is one.
std::optional<Predefined> predefined_of(DType dtype, ReduceKind kind) {
  if (dtype == DType::boolean || dtype == DType::f16 || dtype == DType::bf16) return {};
  switch (kind) {
    case ReduceKind::sum:
    case ReduceKind::avg:
    case ReduceKind::premul_sum:
      return Predefined::sum;
    case ReduceKind::product:
      return Predefined::product;
    case ReduceKind::min:
      return is_integer(dtype) ? std::optional(Predefined::min) : std::nullopt;
    case ReduceKind::max:
      return is_integer(dtype) ? std::optional(Predefined::max) : std::nullopt;
    case ReduceKind::band:
      return Predefined::band;
    case ReduceKind::bor:
      return Predefined::bor;
    case ReduceKind::bxor:
      return Predefined::bxor;
  }
  return {};
}

}  // namespace

Operations::Operations(Library& library) {
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (int kind = 0; kind < kReduceKindCount; ++kind) {
      const auto type = static_cast<DType>(dtype);
      const auto reduction = static_cast<ReduceKind>(kind);
      if (!supports(type, reduction)) continue;
      const std::optional<Predefined> own = predefined_of(type, reduction);
      handles_[dtype][kind] = own ? library.constants().predefined[static_cast<int>(*own)]
                                  : library.create_op(kCombine[dtype][kind]);
    }
  }
}

}  // namespace mccl::mpi
