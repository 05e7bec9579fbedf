// Checks every reduction on every type, in every reducing call, against the kernels' reference.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/conformance/checks.h"
#include "kernels/reference.h"

namespace mccl::conformance {
namespace {

namespace reference = kernels::reference;
using Bytes = std::vector<std::byte>;

/// Counts on both sides of any backend's limit for small messages. The largest is odd, so it fits
/// no block size.
constexpr std::size_t kCounts[] = {1, 7, 1024, 20'011};
constexpr double kFactor = 0.5;

template <typename T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

/// Writes a small integer as an element of the type.
void write_element(DType dtype, std::byte* at, int value) {
  switch (dtype) {
    case DType::boolean:
      return put<std::uint8_t>(at, value % 2 != 0);
    case DType::u8:
      return put(at, static_cast<std::uint8_t>(value));
    case DType::i8:
      return put(at, static_cast<std::int8_t>(value));
    case DType::u16:
      return put(at, static_cast<std::uint16_t>(value));
    case DType::i16:
      return put(at, static_cast<std::int16_t>(value));
    case DType::u32:
      return put(at, static_cast<std::uint32_t>(value));
    case DType::i32:
      return put(at, static_cast<std::int32_t>(value));
    case DType::u64:
      return put(at, static_cast<std::uint64_t>(value));
    case DType::i64:
      return put(at, static_cast<std::int64_t>(value));
    case DType::f16:
      return put(at, reference::narrow_f16(static_cast<float>(value)));
    case DType::bf16:
      return put(at, reference::narrow_bf16(static_cast<float>(value)));
    case DType::f32:
      return put(at, static_cast<float>(value));
    case DType::f64:
      return put(at, static_cast<double>(value));
    case DType::c64:
      put(at, static_cast<float>(value));
      return put(at + 4, static_cast<float>(1 - value));
    case DType::c128:
      put(at, static_cast<double>(value));
      return put(at + 8, static_cast<double>(1 - value));
  }
}

/// Inputs repeat after this many elements, so that the slow reference computes only one period.
constexpr std::size_t kPeriod = 3;

/// Returns `count` elements that repeat the period.
Bytes repeated(const Bytes& period, std::size_t count) {
  Bytes bytes(count * (period.size() / kPeriod));
  std::size_t done = std::min(period.size(), bytes.size());
  std::copy_n(period.begin(), done, bytes.begin());
  while (done < bytes.size()) {  // copies whole periods, twice as many each time
    const std::size_t more = std::min(done, bytes.size() - done);
    std::copy_n(bytes.begin(), more, bytes.begin() + static_cast<std::ptrdiff_t>(done));
    done += more;
  }
  return bytes;
}

Bytes period_of(DType dtype, int rank) {
  Bytes bytes(kPeriod * size_of(dtype));
  for (std::size_t i = 0; i < kPeriod; ++i) {
    write_element(dtype, bytes.data() + i * size_of(dtype),
                  static_cast<int>((static_cast<std::size_t>(rank) * 5 + i) % kPeriod));
  }
  return bytes;
}

/// Returns values whose sums and products over eight ranks are exact in every type, or wrap.
Bytes input_of(DType dtype, int rank, std::size_t count) {
  return repeated(period_of(dtype, rank), count);
}

/// Returns the result that the ranks together must get.
Bytes expected(DType dtype, ReduceKind kind, int size, std::size_t count) {
  const auto of = [&](int rank) {
    Bytes bytes = period_of(dtype, rank);
    if (kind == ReduceKind::premul_sum) {
      reference::scale(dtype, bytes.data(), bytes.data(), kPeriod, kFactor * (rank + 1));
    }
    return bytes;
  };
  Bytes result = of(0);
  for (int rank = 1; rank < size; ++rank) {
    const Bytes next = of(rank);
    reference::reduce(dtype, kind, result.data(), next.data(), result.data(), kPeriod);
  }
  if (kind == ReduceKind::avg) reference::divide(dtype, result.data(), kPeriod, size);
  return repeated(result, count);
}

/// Calls `check` for every type, reduction and count.
void for_every_reduction(Context& context,
                         void (*check)(Group&, DType, ReduceOp, std::size_t, const Bytes&)) {
  for (int type = 0; type < kDTypeCount; ++type) {
    for (int number = 0; number < kReduceKindCount; ++number) {
      const auto dtype = static_cast<DType>(type);
      const auto kind = static_cast<ReduceKind>(number);
      if (!supports(dtype, kind)) continue;
      const ReduceOp op(kind, kFactor * (context.rank() + 1));
      for (const std::size_t count : kCounts) {
        SCOPED_TRACE(std::string(name_of(kind)) + " of " + std::to_string(count) + " " +
                     std::string(name_of(dtype)));
        check(*context.world(), dtype, op, count, expected(dtype, kind, context.size(), count));
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

void all_reduce(Context& context) {
  for_every_reduction(
      context, [](Group& group, DType dtype, ReduceOp op, std::size_t count, const Bytes& result) {
        Bytes in = input_of(dtype, group.rank(), count);
        Bytes out(in.size());
        group.all_reduce({in.data(), count, dtype}, {out.data(), count, dtype}, op).wait();
        ASSERT_EQ(out, result);
        ASSERT_EQ(in, input_of(dtype, group.rank(), count)) << "the input was written";
        group
            .all_reduce({in.data(), count, dtype}, {in.data(), count, dtype}, op,
                        {.caller_waits = true})
            .wait();
        ASSERT_EQ(in, result) << "in place";
      });
}

void reduce(Context& context) {
  for_every_reduction(
      context, [](Group& group, DType dtype, ReduceOp op, std::size_t count, const Bytes& result) {
        const int root = group.size() - 1;
        Bytes in = input_of(dtype, group.rank(), count);
        Bytes out(group.rank() == root ? in.size() : 0);
        group
            .reduce({in.data(), count, dtype}, {out.data(), out.size() / size_of(dtype), dtype}, op,
                    root)
            .wait();
        if (group.rank() == root) {
          ASSERT_EQ(out, result);
        }
        ASSERT_EQ(in, input_of(dtype, group.rank(), count)) << "the input was written";
      });
}

void reduce_scatter(Context& context) {
  for_every_reduction(context, [](Group& group, DType dtype, ReduceOp op, std::size_t count,
                                  const Bytes&) {
    const std::size_t total = count * static_cast<std::size_t>(group.size());
    const Bytes whole = expected(dtype, op.kind, group.size(), total);
    const auto begin = static_cast<std::ptrdiff_t>(count * size_of(dtype)) * group.rank();
    const Bytes mine(whole.begin() + begin,
                     whole.begin() + begin + static_cast<std::ptrdiff_t>(count * size_of(dtype)));
    Bytes in = input_of(dtype, group.rank(), total);
    Bytes out(mine.size());
    group.reduce_scatter({in.data(), total, dtype}, {out.data(), count, dtype}, op).wait();
    ASSERT_EQ(out, mine);
    ASSERT_EQ(in, input_of(dtype, group.rank(), total)) << "the input was written";
    // The output is this rank's slot of the input. The other slots must stay unchanged.
    group.reduce_scatter({in.data(), total, dtype}, {in.data() + begin, count, dtype}, op).wait();
    Bytes left = input_of(dtype, group.rank(), total);
    std::copy(mine.begin(), mine.end(), left.begin() + begin);
    ASSERT_EQ(in, left) << "in place";
  });
}

void moves_of_every_type(Context& context) {
  Group& group = *context.world();
  const auto ranks = static_cast<std::size_t>(group.size());
  for (int type = 0; type < kDTypeCount; ++type) {
    const auto dtype = static_cast<DType>(type);
    for (const std::size_t count : kCounts) {
      Bytes data = input_of(dtype, group.rank(), count);
      Bytes all(ranks * data.size());
      group.all_gather({data.data(), count, dtype}, {all.data(), ranks * count, dtype}).wait();
      Bytes back(all.size());
      group.all_to_all({all.data(), ranks * count, dtype}, {back.data(), ranks * count, dtype})
          .wait();
      for (int rank = 0; rank < group.size(); ++rank) {
        const auto at = static_cast<std::ptrdiff_t>(data.size()) * rank;
        const auto end = at + static_cast<std::ptrdiff_t>(data.size());
        ASSERT_EQ(Bytes(all.begin() + at, all.begin() + end), input_of(dtype, rank, count));
        ASSERT_EQ(Bytes(back.begin() + at, back.begin() + end),
                  input_of(dtype, group.rank(), count));
      }
      group.broadcast({data.data(), count, dtype}, 0).wait();
      ASSERT_EQ(data, input_of(dtype, 0, count));
    }
  }
}

void nan_propagates_in_min_and_max(Context& context) {
  for (const ReduceKind kind : {ReduceKind::min, ReduceKind::max}) {
    std::vector<float> data(2000, static_cast<float>(context.rank()));
    if (context.rank() == context.size() - 1) {
      data[1999] = std::numeric_limits<float>::quiet_NaN();
    }
    const Buffer view{data.data(), data.size(), DType::f32};
    context.world()->all_reduce(view, view, kind).wait();
    ASSERT_NE(data[1999], data[1999]);
    ASSERT_EQ(data[0], kind == ReduceKind::min ? 0 : static_cast<float>(context.size() - 1));
  }
}

void data_at_any_alignment(Context& context) {
  constexpr std::size_t kCount = 5000;
  for (const std::size_t offset : {1u, 2u, 3u}) {
    Bytes memory(offset + kCount * 8);
    const Bytes in = input_of(DType::f64, context.rank(), kCount);
    std::copy(in.begin(), in.end(), memory.begin() + static_cast<std::ptrdiff_t>(offset));
    const Buffer view{memory.data() + offset, kCount, DType::f64};
    context.world()->all_reduce(view, view, ReduceKind::sum).wait();
    ASSERT_EQ(Bytes(memory.begin() + static_cast<std::ptrdiff_t>(offset), memory.end()),
              expected(DType::f64, ReduceKind::sum, context.size(), kCount));
  }
}

constexpr Check kChecks[] = {
    {"AllReduceOfEveryTypeAndKind", 1, all_reduce},
    {"ReduceOfEveryTypeAndKind", 1, reduce},
    {"ReduceScatterOfEveryTypeAndKind", 1, reduce_scatter},
    {"MovesOfEveryType", 1, moves_of_every_type},
    {"NanPropagatesInMinAndMax", 1, nan_propagates_in_min_and_max},
    {"DataAtAnyAlignment", 1, data_at_any_alignment},
};

}  // namespace

std::span<const Check> reduction_checks() { return kChecks; }

}  // namespace mccl::conformance
