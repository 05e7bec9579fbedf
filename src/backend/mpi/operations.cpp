// The part of MpiLibrary that maps each reduction and element type to an MPI operation (MPI_Op).
#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "backend/mpi/library.h"
#include "kernels/reduce.h"

namespace mccl::mpi {
namespace {

/// Function that MPI calls with two operands of `length` elements. The result replaces the second
/// operand. `dtype` and `kind` are template parameters, because MPI does not pass them.
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

/// Returns MPI's predefined operation that gives the same result as MCCL's kernel. Returns
/// std::nullopt if there is none.
std::optional<Predefined> predefined_of(DType dtype, ReduceKind kind) {
  using enum Predefined;
  if (dtype == DType::boolean || dtype == DType::f16 || dtype == DType::bf16) return {};
  const bool orders = kind == ReduceKind::min || kind == ReduceKind::max;
  if (orders && !is_integer(dtype)) return {};
  // Indexed by ReduceKind.
  constexpr Predefined kOf[] = {sum, sum, product, min, max, band, bor, bxor, sum};
  static_assert(std::size(kOf) == kReduceKindCount);
  return kOf[static_cast<int>(kind)];
}

}  // namespace

void MpiLibrary::create_operations() {
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (int kind = 0; kind < kReduceKindCount; ++kind) {
      const auto type = static_cast<DType>(dtype);
      const auto reduction = static_cast<ReduceKind>(kind);
      if (!supports(type, reduction)) continue;
      Op& operation = operations_[dtype][kind];
      if (const std::optional<Predefined> own = predefined_of(type, reduction)) {
        operation = abi_.predefined[static_cast<int>(*own)];
      } else {
        Op_create(kCombine[dtype][kind], 1, &operation);
      }
    }
  }
}

}  // namespace mccl::mpi
