// Arrays to reduce: random numbers mixed with values at which arithmetic may fail.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <vector>

#include "mccl/types.h"

namespace mccl::kernels {

/// Bytes that begin `offset` past a 64-byte boundary, surrounded by bytes of a known value.
class Array {
 public:
  Array(std::size_t bytes, std::size_t offset)
      : bytes_(bytes), offset_(offset), memory_(bytes + 4 * kMargin, kFill) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data()) + kMargin;
    begin_ = kMargin + (kMargin - address % kMargin) % kMargin + offset % kMargin;
  }
  Array(const Array& other, std::size_t offset) : Array(other.bytes_, offset) {
    std::copy_n(other.data(), bytes_, data());
  }
  Array(const Array& other) : Array(other, other.offset_) {}
  Array& operator=(const Array&) = delete;

  std::uint8_t* data() { return memory_.data() + begin_; }
  const std::uint8_t* data() const { return memory_.data() + begin_; }
  std::size_t size() const { return bytes_; }

  /// True if the contents are equal and neither array was written outside its bounds.
  friend bool operator==(const Array& a, const Array& b) {
    return a.bytes_ == b.bytes_ && std::equal(a.data(), a.data() + a.bytes_, b.data()) &&
           a.surroundings_intact() && b.surroundings_intact();
  }

 private:
  static constexpr std::size_t kMargin = 64;
  static constexpr std::uint8_t kFill = 0xA5;

  bool surroundings_intact() const {
    const auto is_fill = [](std::uint8_t byte) { return byte == kFill; };
    return std::all_of(memory_.data(), data(), is_fill) &&
           std::all_of(data() + bytes_, memory_.data() + memory_.size(), is_fill);
  }

  std::size_t bytes_;
  std::size_t offset_;
  std::vector<std::uint8_t> memory_;
  std::size_t begin_ = 0;
};

/// Bit patterns of a float format: zeros, ones, subnormals, extremes, infinities and NaNs.
template <class Bits>
std::vector<Bits> special_patterns(Bits infinity, Bits one) {
  const Bits sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const Bits least_normal = static_cast<Bits>(infinity & -infinity);
  std::vector<Bits> patterns = {
      0,
      1,
      static_cast<Bits>(least_normal - 1),
      least_normal,
      one,
      static_cast<Bits>(one + 1),
      static_cast<Bits>(infinity - 1),
      infinity,
      static_cast<Bits>(infinity + 1),
      static_cast<Bits>(infinity | (least_normal >> 1)),
      static_cast<Bits>(infinity | (least_normal >> 1) | 3),
  };
  const std::size_t positive = patterns.size();
  for (std::size_t i = 0; i < positive; ++i) patterns.push_back(patterns[i] | sign);
  return patterns;
}

/// Random elements of `dtype`: plain numbers, any bits at all, and special values.
class Samples {
 public:
  explicit Samples(unsigned seed) : random_(seed) {}

  std::size_t below(std::size_t limit) { return random_() % limit; }

  Array array(DType dtype, std::size_t n, std::size_t offset) {
    Array result(n * size_of(dtype), offset);
    std::uint8_t* to = result.data();
    for (std::size_t left = result.size(); left > 0;) {
      const std::size_t bytes = std::min(left, write_one(dtype, to));
      to += bytes;
      left -= bytes;
    }
    return result;
  }

 private:
  // Writes one element, or one part of a complex one.
  std::size_t write_one(DType dtype, std::uint8_t* to) {
    switch (dtype) {
      case DType::f16:
        return put(to, pick<std::uint16_t>(0x7C00, 0x3C00));
      case DType::bf16:
        return put(to, pick<std::uint16_t>(0x7F80, 0x3F80));
      case DType::f32:
      case DType::c64:
        return put(to, pick<std::uint32_t>(0x7F800000, 0x3F800000));
      case DType::f64:
      case DType::c128:
        return put(to, pick<std::uint64_t>(0x7FF0000000000000, 0x3FF0000000000000));
      case DType::boolean:
        return put(to, static_cast<std::uint8_t>(below(2) ? below(2) : random_()));
      default:
        return put_integer(to, size_of(dtype));
    }
  }

  template <class Bits>
  Bits pick(Bits infinity, Bits one) {
    const auto any = static_cast<Bits>(random_());
    switch (below(4)) {
      case 0: {
        const auto patterns = special_patterns<Bits>(infinity, one);
        return patterns[below(patterns.size())];
      }
      case 1:
        return any;
      default: {
        // Between 1 and 4, either sign: sums that round, carry and cancel.
        const Bits least_normal = static_cast<Bits>(infinity & -infinity);
        const Bits sign = static_cast<Bits>(any & (Bits{1} << (8 * sizeof(Bits) - 1)));
        return static_cast<Bits>(sign | (one + any % (2 * least_normal)));
      }
    }
  }

  std::size_t put_integer(std::uint8_t* to, std::size_t bytes) {
    const std::uint64_t top = std::uint64_t{1} << (8 * bytes - 1);
    const std::uint64_t specials[] = {0, 1, ~std::uint64_t{0}, top, top - 1, 2, top + 1};
    const std::uint64_t value = below(3) ? random_() : specials[below(std::size(specials))];
    std::memcpy(to, &value, bytes);  // little-endian: the low bytes
    return bytes;
  }

  template <class Bits>
  static std::size_t put(std::uint8_t* to, Bits bits) {
    std::memcpy(to, &bits, sizeof(bits));
    return sizeof(bits);
  }

  std::mt19937_64 random_;
};

}  // namespace mccl::kernels
