#include "cli/bench/pattern.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/elements.h"

namespace mccl::cli::bench {
namespace {

/// Scrambles all bits (the finaliser of splitmix64).
constexpr std::uint64_t scrambled(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::uint64_t random_of(std::uint64_t source, std::uint64_t element) {
  return scrambled(scrambled(source + 1) + element * 0x9e3779b97f4a7c15);
}

bool is_signed(DType dtype) {
  return dtype == DType::i8 || dtype == DType::i16 || dtype == DType::i32 || dtype == DType::i64 ||
         is_floating(dtype);
}

/// Returns a number n such that the type represents all integers from 0 to n exactly.
std::uint64_t largest_exact(DType dtype) {
  if (dtype == DType::boolean) return 1;
  if (dtype == DType::f16) return 2048;
  if (dtype == DType::bf16) return 256;
  if (size_of(dtype) > 2) return 1 << 20;
  return (std::uint64_t{1} << (8 * size_of(dtype) - (is_signed(dtype) ? 1 : 0))) - 1;
}

template <typename T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

/// The type must represent `value` exactly. Copies the low bytes of an integer.
void encode(DType dtype, double value, std::byte* to) {
  static_assert(std::endian::native == std::endian::little);
  switch (dtype) {
    case DType::f16:
      return put(to, kernels::F16::narrow(static_cast<float>(value)));
    case DType::bf16:
      return put(to, kernels::Bf16::narrow(static_cast<float>(value)));
    case DType::f32:
    case DType::c64:
      return put(to, static_cast<float>(value));
    case DType::f64:
    case DType::c128:
      return put(to, value);
    default:
      const std::int64_t integer = std::llround(value);
      std::memcpy(to, &integer, size_of(dtype));
  }
}

/// Encodes `value(element, component)` for each element of one period. Complex types have two
/// components.
template <typename Value>
Pattern pattern_of(DType dtype, Value&& value) {
  const std::size_t element_bytes = size_of(dtype);
  const std::size_t components = is_complex(dtype) ? 2 : 1;
  std::vector<std::byte> cycle(kPeriod * element_bytes);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    for (std::size_t c = 0; c < components; ++c) {
      encode(dtype, value(i, c), &cycle[i * element_bytes + c * element_bytes / components]);
    }
  }
  return {std::move(cycle), element_bytes};
}

/// Returns a power of two that depends on the index, so that exponents vary and scaling loses no
/// bits. Returns 1 for types without an exponent.
double scale_of(DType dtype, std::size_t element) {
  if (!is_floating(dtype) && !is_complex(dtype)) return 1;
  return std::ldexp(1.0, static_cast<int>(element % 5) - 2);
}

/// Returns the element that `rank` contributes to a sum. The sum over all ranks is at most `limit`,
/// before scaling. If there are more than `limit` ranks, each rank's element is zero or one, and at
/// most `limit` of them are one.
double sum_term(DType dtype, std::uint64_t limit, std::size_t element, std::uint64_t rank,
                std::uint64_t ranks, std::uint64_t salt) {
  const std::uint64_t most = limit / ranks;
  const std::uint64_t term = most > 0 ? random_of(rank ^ salt, element) % (most + 1)
                                      : ((rank + element) % ranks < limit ? 1 : 0);
  return static_cast<double>(term) * scale_of(dtype, element);
}

/// Returns one or two. At most 14 ranks (6 for a type of one byte) return two, so that the type
/// represents the product exactly.
double product_term(DType dtype, std::size_t element, std::uint64_t rank, std::uint64_t ranks) {
  const std::uint64_t most = size_of(dtype) == 1 ? 6 : 14;
  const std::uint64_t twos = element % (std::min(ranks, most) + 1);
  return (rank + element) % ranks < twos ? 2 : 1;
}

double extreme_term(DType dtype, std::size_t element, std::uint64_t rank) {
  const std::uint64_t limit = largest_exact(dtype);
  const std::uint64_t middle = limit / 2;
  const auto value = static_cast<double>(random_of(rank, element) % (limit + 1));
  return is_signed(dtype) ? value - static_cast<double>(middle) : value;
}

double term(DType dtype, ReduceKind kind, std::size_t element, std::size_t c, std::uint64_t rank,
            std::uint64_t ranks, Most most) {
  if (dtype == DType::boolean) return static_cast<double>(random_of(rank, element) % 2);
  const std::uint64_t salt = c << 32;
  const std::uint64_t limit = std::min(largest_exact(dtype), most);
  switch (kind) {
    case ReduceKind::sum:
      return sum_term(dtype, limit, element, rank, ranks, salt);
    case ReduceKind::premul_sum:
      return sum_term(dtype, limit / 2, element, rank, ranks, salt);
    case ReduceKind::avg:
      // All terms are multiples of the number of ranks, so the mean is exact, too.
      return static_cast<double>(ranks) *
             sum_term(dtype, limit / ranks, element, rank, ranks, salt);
    case ReduceKind::product:
      return c == 0 ? product_term(dtype, element, rank, ranks) : 0;
    case ReduceKind::min:
    case ReduceKind::max:
      return extreme_term(dtype, element, rank);
    case ReduceKind::band:
    case ReduceKind::bor:
    case ReduceKind::bxor:
      return static_cast<double>(random_of(rank, element) & 0xffffffff);
  }
  return 0;
}

/// Combines two components. Every operation is exact (see pattern.h).
double combined(DType dtype, ReduceKind kind, double a, double b) {
  const auto bits = [](double value) { return static_cast<std::int64_t>(value); };
  const bool is_bool = dtype == DType::boolean;
  switch (kind) {
    case ReduceKind::product:
      return a * b;
    case ReduceKind::min:
      return std::min(a, b);
    case ReduceKind::max:
      return std::max(a, b);
    case ReduceKind::band:
      return static_cast<double>(bits(a) & bits(b));
    case ReduceKind::bor:
      return static_cast<double>(bits(a) | bits(b));
    case ReduceKind::bxor:
      return static_cast<double>(bits(a) ^ bits(b));
    default:
      return is_bool ? std::max(a, b) : a + b;
  }
}

double value_of(DType dtype, const std::byte* element) {
  const auto as = [element]<typename T>(T value) {
    std::memcpy(&value, element, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::f64:
      return as(double());
    case DType::f32:
      return as(float());
    case DType::f16:
      return kernels::F16::widen(as(std::uint16_t()));
    case DType::bf16:
      return kernels::Bf16::widen(as(std::uint16_t()));
    default:
      return 0;
  }
}

}  // namespace

void Pattern::fill(std::span<std::byte> memory, std::size_t first) const {
  std::size_t offset = (first % kPeriod) * element_bytes_;
  while (!memory.empty()) {
    const std::size_t n = std::min(memory.size(), cycle_.size() - offset);
    std::memcpy(memory.data(), cycle_.data() + offset, n);
    memory = memory.subspan(n);
    offset = 0;
  }
}

std::uint64_t Pattern::count_wrong(std::span<const std::byte> memory, std::size_t first) const {
  std::uint64_t wrong = 0;
  std::size_t offset = (first % kPeriod) * element_bytes_;
  while (!memory.empty()) {
    const std::size_t n = std::min(memory.size(), cycle_.size() - offset);
    const std::byte* expected = cycle_.data() + offset;
    if (std::memcmp(memory.data(), expected, n) != 0) {
      for (std::size_t i = 0; i + element_bytes_ <= n; i += element_bytes_)
        wrong += std::memcmp(memory.data() + i, expected + i, element_bytes_) != 0 ? 1 : 0;
    }
    memory = memory.subspan(n);
    offset = 0;
  }
  return wrong;
}

double Pattern::largest_error(DType dtype, std::span<const std::byte> memory,
                              std::size_t first) const {
  double largest = 0;
  double error = 0;
  for (std::size_t i = 0; i * element_bytes_ < memory.size(); ++i) {
    const double expected = value_of(dtype, cycle_.data() + (first + i) % kPeriod * element_bytes_);
    const double found = value_of(dtype, memory.data() + i * element_bytes_);
    largest = std::max(largest, std::abs(expected));
    error = std::max(error, std::abs(found - expected));
    if (std::isnan(found)) return found;
  }
  return largest > 0 ? error / largest : error;
}

Pattern contribution(DType dtype, ReduceKind kind, int rank, int ranks, Most most) {
  return pattern_of(dtype, [&](std::size_t element, std::size_t c) {
    return term(dtype, kind, element, c, static_cast<std::uint64_t>(rank),
                static_cast<std::uint64_t>(ranks), most);
  });
}

Pattern reduction(DType dtype, ReduceKind kind, int ranks, Most most) {
  return pattern_of(dtype, [&](std::size_t element, std::size_t c) {
    const auto given_by = [&](int rank) {
      return term(dtype, kind, element, c, static_cast<std::uint64_t>(rank),
                  static_cast<std::uint64_t>(ranks), most);
    };
    double value = given_by(0);
    for (int rank = 1; rank < ranks; ++rank) value = combined(dtype, kind, value, given_by(rank));
    if (kind == ReduceKind::avg) return value / ranks;
    return kind == ReduceKind::premul_sum ? value * kPremulFactor : value;
  });
}

Pattern message(DType dtype, std::uint64_t source) {
  const std::uint64_t values = largest_exact(dtype) + 1;
  return pattern_of(dtype, [&](std::size_t element, std::size_t c) {
    return static_cast<double>(random_of(source ^ (std::uint64_t{c} << 32), element) % values);
  });
}

}  // namespace mccl::cli::bench
