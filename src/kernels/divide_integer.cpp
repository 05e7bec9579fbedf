#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/fold.h"

namespace mccl::kernels {
namespace {

template <class T>
void divide_as(void* data, std::size_t n, int divisor) {
  // A type that holds the values of both operands.
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  using Quick = std::conditional_t<(sizeof(T) < 4), std::int32_t, Wide>;
  auto* at = static_cast<unsigned char*>(data);
  for (std::size_t i = 0; i < n; ++i, at += sizeof(T)) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    value = static_cast<T>(static_cast<Quick>(value) / static_cast<Quick>(divisor));
    std::memcpy(at, &value, sizeof(T));
  }
}

}  // namespace

void divide_integer(DType dtype, void* data, std::size_t n, int divisor) {
  switch (dtype) {
    case DType::u8:
      return divide_as<std::uint8_t>(data, n, divisor);
    case DType::i8:
      return divide_as<std::int8_t>(data, n, divisor);
    case DType::u16:
      return divide_as<std::uint16_t>(data, n, divisor);
    case DType::i16:
      return divide_as<std::int16_t>(data, n, divisor);
    case DType::u32:
      return divide_as<std::uint32_t>(data, n, divisor);
    case DType::i32:
      return divide_as<std::int32_t>(data, n, divisor);
    case DType::u64:
      return divide_as<std::uint64_t>(data, n, divisor);
    case DType::i64:
      return divide_as<std::int64_t>(data, n, divisor);
    default:
      return;
  }
}

}  // namespace mccl::kernels
