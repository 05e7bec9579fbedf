// The C functions that return versions, and names and sizes of enum values.
#include <array>
#include <string_view>

#include "base/version.h"
#include "c_api/options.h"
#include "mccl/c.h"
#include "mccl/types.h"

namespace mccl::c_api {
namespace {

// Checks at compile time that an enumerator has the same number in C and in C++, so that values
// need no conversion.
template <typename Value>
constexpr bool same(Value value, std::int32_t number) {
  return static_cast<std::int32_t>(value) == number;
}
static_assert(same(DType::boolean, MCCL_BOOL) && same(DType::u8, MCCL_U8) &&
              same(DType::i8, MCCL_I8) && same(DType::u16, MCCL_U16) &&
              same(DType::i16, MCCL_I16) && same(DType::u32, MCCL_U32) &&
              same(DType::i32, MCCL_I32) && same(DType::u64, MCCL_U64) &&
              same(DType::i64, MCCL_I64) && same(DType::f16, MCCL_F16) &&
              same(DType::bf16, MCCL_BF16) && same(DType::f32, MCCL_F32) &&
              same(DType::f64, MCCL_F64) && same(DType::c64, MCCL_C64) &&
              same(DType::c128, MCCL_C128) && kDTypeCount == MCCL_C128 + 1);
static_assert(same(ReduceKind::sum, MCCL_SUM) && same(ReduceKind::avg, MCCL_AVG) &&
              same(ReduceKind::product, MCCL_PRODUCT) && same(ReduceKind::min, MCCL_MIN) &&
              same(ReduceKind::max, MCCL_MAX) && same(ReduceKind::band, MCCL_BAND) &&
              same(ReduceKind::bor, MCCL_BOR) && same(ReduceKind::bxor, MCCL_BXOR) &&
              same(ReduceKind::premul_sum, MCCL_PREMUL_SUM) &&
              kReduceKindCount == MCCL_PREMUL_SUM + 1);
static_assert(kAnySource == MCCL_ANY_SOURCE);

constexpr std::array kStatusNames = {
    "MCCL_OK",
    "MCCL_ERROR_INVALID_ARGUMENT",
    "MCCL_ERROR_TIMEOUT",
    "MCCL_ERROR_PEER",
    "MCCL_ERROR_MISMATCH",
    "MCCL_ERROR_ABORTED",
    "MCCL_ERROR_CORRUPTION",
    "MCCL_ERROR_OTHER",
    "MCCL_ERROR_OUT_OF_MEMORY",
    "MCCL_ERROR_NO_ROOM",
    "MCCL_ERROR_INTERNAL",
};
static_assert(kStatusNames.size() == MCCL_ERROR_INTERNAL + 1);

bool known_dtype(mccl_dtype dtype) { return dtype >= 0 && dtype < kDTypeCount; }
bool known_op(mccl_reduce_op op) { return op >= 0 && op < kReduceKindCount; }

}  // namespace
}  // namespace mccl::c_api

using namespace mccl::c_api;

uint32_t mccl_c_version(void) noexcept { return MCCL_C_VERSION; }

const char* mccl_version(void) noexcept { return mccl::version().data(); }

const char* mccl_status_name(mccl_status status) noexcept {
  const bool known = status >= 0 && static_cast<std::size_t>(status) < kStatusNames.size();
  return known ? kStatusNames[static_cast<std::size_t>(status)] : "unknown status";
}

size_t mccl_dtype_size(mccl_dtype dtype) noexcept {
  return known_dtype(dtype) ? mccl::size_of(static_cast<mccl::DType>(dtype)) : 0;
}

// Names are string literals, so they end with a NUL.
const char* mccl_dtype_name(mccl_dtype dtype) noexcept {
  if (!known_dtype(dtype)) return "unknown dtype";
  return mccl::name_of(static_cast<mccl::DType>(dtype)).data();
}

const char* mccl_reduce_op_name(mccl_reduce_op op) noexcept {
  if (!known_op(op)) return "unknown reduction";
  return mccl::name_of(static_cast<mccl::ReduceKind>(op)).data();
}

int32_t mccl_supports(mccl_dtype dtype, mccl_reduce_op op) noexcept {
  if (!known_dtype(dtype) || !known_op(op)) return 0;
  return mccl::supports(static_cast<mccl::DType>(dtype), static_cast<mccl::ReduceKind>(op)) ? 1 : 0;
}
