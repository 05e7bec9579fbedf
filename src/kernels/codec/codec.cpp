#include "kernels/codec/codec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/codec/blocks.h"

namespace mccl::kernels {
namespace {

constexpr std::size_t kLongestBlock = 4096;

/// The elements of one or more blocks as f32; small enough for the core's first-level cache.
using Values = std::array<float, kLongestBlock>;

/// Number of elements processed at a time: as many whole blocks as fit in Values.
std::size_t stride_of(const Coding& coding) {
  return kLongestBlock / coding.block() * coding.block();
}

const std::byte* bytes_at(const void* data, DType dtype, std::size_t element) {
  return static_cast<const std::byte*>(data) + element * size_of(dtype);
}
std::byte* bytes_at(void* data, DType dtype, std::size_t element) {
  return static_cast<std::byte*>(data) + element * size_of(dtype);
}

/// Converts elements of any float type to f32.
void widen(DType dtype, const void* src, std::size_t n, float* dst) {
  if (dtype == DType::f32) {
    std::memcpy(dst, src, n * sizeof(float));
  } else if (dtype == DType::f64) {
    for (std::size_t i = 0; i < n; ++i) {
      double value = 0;
      std::memcpy(&value, static_cast<const std::byte*>(src) + i * sizeof value, sizeof value);
      dst[i] = static_cast<float>(value);
    }
  } else {
    widen_halves(dtype, src, n, dst);
  }
}

/// Converts f32 to elements of any float type, rounding to nearest even.
void narrow(DType dtype, const float* src, std::size_t n, void* dst) {
  if (dtype == DType::f32) {
    std::memcpy(dst, src, n * sizeof(float));
  } else if (dtype == DType::f64) {
    for (std::size_t i = 0; i < n; ++i) {
      const double value = src[i];
      std::memcpy(static_cast<std::byte*>(dst) + i * sizeof value, &value, sizeof value);
    }
  } else {
    narrow_halves(dtype, src, n, dst);
  }
}

std::size_t kept(const Coding& coding, Coded form) {
  return form == Coded::sum ? coding.kept_of_sum : coding.kept;
}

void encode_whole(const Coding& coding, Coded form, const float* values, std::size_t blocks,
                  std::byte* dst) {
  if (coding.codec == Codec::topk) return encode_topk(values, kept(coding, form), dst);
  encode_blocks(coding.codec, values, blocks, dst);
}

bool add_whole(const Coding& coding, Coded form, const std::byte* src, std::size_t blocks,
               float* values, bool first) {
  if (coding.codec == Codec::topk) return add_topk(src, kept(coding, form), values, first);
  return add_blocks(coding.codec, src, blocks, values, first);
}

/// Computes the difference between values and the blocks into which they were encoded.
class Remainder {
 public:
  /// Writes elements of `dtype` to `left`. If `left` is null, all calls are no-ops.
  Remainder(DType dtype, void* left) : dtype_(dtype), left_(left) {}

  /// Computes factor * (values - the decoded blocks). Adds the result to left[at ...] if `add` is
  /// set, and assigns it otherwise. `source`: the original values of type `dtype`, if `values` were
  /// rounded from them.
  void take(const Coding& coding, Coded form, const float* values, const std::byte* encoded,
            std::size_t at, std::size_t count, std::size_t blocks, float factor, bool add,
            const std::byte* source = nullptr) {
    if (!left_) return;
    add_whole(coding, form, encoded, blocks, held_.data(), true);
    if (source && dtype_ == DType::f64) return take_from_doubles(source, at, count);
    for (std::size_t i = 0; i < count; ++i) {
      const float lost = factor * (values[i] - held_[i]);
      held_[i] = std::abs(lost) <= std::numeric_limits<float>::max() ? lost : 0;
    }
    std::byte* const to = bytes_at(left_, dtype_, at);
    if (add) {
      widen(dtype_, to, count, before_.data());
      for (std::size_t i = 0; i < count; ++i) held_[i] += before_[i];
    }
    narrow(dtype_, held_.data(), count, to);
  }

 private:
  /// Computes the difference from the original f64 elements, because `values` were rounded to f32.
  void take_from_doubles(const std::byte* source, std::size_t at, std::size_t count) {
    std::byte* const to = bytes_at(left_, dtype_, at);
    for (std::size_t i = 0; i < count; ++i) {
      double lost = 0;
      std::memcpy(&lost, source + i * sizeof lost, sizeof lost);
      lost -= held_[i];
      if (!std::isfinite(lost)) lost = 0;
      std::memcpy(to + i * sizeof lost, &lost, sizeof lost);
    }
  }

  const DType dtype_;
  void* const left_;
  alignas(64) Values held_;
  alignas(64) Values before_;
};

/// Calls step(first element, element count, block count, byte offset of the blocks) for each run of
/// stride_of(coding) elements.
template <typename Step>
void for_each_stride(const Coding& coding, Coded form, std::size_t n, const Step& step) {
  const std::size_t stride = stride_of(coding);
  for (std::size_t at = 0; at < n; at += stride) {
    const std::size_t count = std::min(stride, n - at);
    const std::size_t blocks = (count + coding.block() - 1) / coding.block();
    step(at, count, blocks, at / coding.block() * coding.block_bytes(form));
  }
}

/// Sums the operands, and calls finish(values, first element, element count, block count) for each
/// run of stride_of(coding) sums. Returns -1 on success, or the index of an operand with blocks
/// that encode() cannot have produced.
template <typename Finish>
int fold_strides(const Coding& coding, std::span<const std::byte* const> operands, std::size_t n,
                 int divisor, const Finish& finish) {
  alignas(64) Values values;
  int wrong = -1;
  for_each_stride(coding, Coded::contribution, n,
                  [&](std::size_t at, std::size_t count, std::size_t blocks, std::size_t begin) {
                    for (std::size_t i = 0; i < operands.size(); ++i) {
                      const bool good = add_whole(coding, Coded::contribution, operands[i] + begin,
                                                  blocks, values.data(), i == 0);
                      if (!good && wrong < 0) wrong = static_cast<int>(i);
                    }
                    finish_values(values.data(), blocks * coding.block(),
                                  static_cast<float>(divisor));
                    finish(values.data(), at, count, blocks);
                  });
  return wrong;
}

}  // namespace

void encode(const Coding& coding, Coded form, DType dtype, const void* src, std::size_t n,
            std::byte* dst, void* left) {
  alignas(64) Values values;
  Remainder remainder(dtype, left);
  for_each_stride(
      coding, form, n,
      [&](std::size_t at, std::size_t count, std::size_t blocks, std::size_t begin) {
        const std::byte* from = bytes_at(src, dtype, at);
        const bool as_it_is = dtype == DType::f32 && count == blocks * coding.block() &&
                              reinterpret_cast<std::uintptr_t>(from) % alignof(float) == 0;
        if (!as_it_is) {
          widen(dtype, from, count, values.data());
          std::fill(values.begin() + static_cast<std::ptrdiff_t>(count),
                    values.begin() + static_cast<std::ptrdiff_t>(blocks * coding.block()), 0.0F);
        }
        const float* const given = as_it_is ? reinterpret_cast<const float*>(from) : values.data();
        encode_whole(coding, form, given, blocks, dst + begin);
        remainder.take(coding, form, given, dst + begin, at, count, blocks, 1, false, from);
      });
}

bool decode(const Coding& coding, Coded form, DType dtype, const std::byte* src, std::size_t n,
            void* dst) {
  alignas(64) Values values;
  bool good = true;
  for_each_stride(coding, form, n,
                  [&](std::size_t at, std::size_t count, std::size_t blocks, std::size_t begin) {
                    std::byte* to = bytes_at(dst, dtype, at);
                    const bool as_it_is =
                        dtype == DType::f32 && count == blocks * coding.block() &&
                        reinterpret_cast<std::uintptr_t>(to) % alignof(float) == 0;
                    float* const place = as_it_is ? reinterpret_cast<float*>(to) : values.data();
                    good = add_whole(coding, form, src + begin, blocks, place, true) && good;
                    if (!as_it_is) narrow(dtype, values.data(), count, to);
                  });
  return good;
}

int fold_to_sum(const Coding& coding, std::span<const std::byte* const> operands, std::size_t n,
                int divisor, std::byte* dst, DType dtype, void* left) {
  Remainder remainder(dtype, left);
  return fold_strides(coding, operands, n, divisor,
                      [&](float* values, std::size_t at, std::size_t count, std::size_t blocks) {
                        // Sets the padding after the last element to zero: the operands may hold
                        // other values there.
                        std::fill(values + count, values + blocks * coding.block(), 0.0F);
                        std::byte* const to =
                            dst + at / coding.block() * coding.block_bytes(Coded::sum);
                        encode_whole(coding, Coded::sum, values, blocks, to);
                        remainder.take(coding, Coded::sum, values, to, at, count, blocks,
                                       static_cast<float>(divisor), true);
                      });
}

int fold_to_elements(const Coding& coding, std::span<const std::byte* const> operands,
                     std::size_t n, int divisor, DType dtype, void* dst) {
  return fold_strides(coding, operands, n, divisor,
                      [&](const float* values, std::size_t at, std::size_t count, std::size_t) {
                        narrow(dtype, values, count, bytes_at(dst, dtype, at));
                      });
}

}  // namespace mccl::kernels
