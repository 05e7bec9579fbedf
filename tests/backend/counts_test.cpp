// Tests that counts are refused if their sum or their size in bytes overflows. After wraparound
// they would look like a small buffer.
#include <cstdint>
#include <functional>
#include <limits>

#include "mccl/error.h"
#include "support/ranks.h"

namespace mccl {
namespace {

using testing::run_ranks;

constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max();

void expect_refusal(const std::function<void()>& call, const char* name, const char* argument) {
  try {
    call();
    ADD_FAILURE() << name << " took " << argument;
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(name), std::string::npos) << text;
    EXPECT_NE(text.find(argument), std::string::npos) << text;
    EXPECT_NE(text.find("address space"), std::string::npos) << text;
  }
}

TEST(Counts, RefusesCountsWhoseSumOverflows) {
  run_ranks(2, [](Context& context) {
    Group& group = *context.world();
    // {SIZE_MAX, 2} adds up to 1; rank 1 sends and receives its 2 elements.
    const std::vector<std::size_t> counts =
        group.rank() == 0 ? std::vector<std::size_t>{2, kHuge} : std::vector<std::size_t>{kHuge, 2};
    float one[1] = {};
    float two[2] = {};
    const Buffer part{two, 2, DType::f32};
    const Buffer all{one, 1, DType::f32};
    expect_refusal([&] { group.all_gatherv(part, all, counts); }, "all_gather", "counts");
    expect_refusal([&] { group.reduce_scatterv(all, part, counts, ReduceKind::sum); },
                   "reduce_scatter", "counts");
    for (const int root : {0, 1}) {
      expect_refusal([&] { group.gatherv(part, all, counts, root); }, "gather", "counts");
      expect_refusal([&] { group.scatterv(all, part, counts, root); }, "scatter", "counts");
    }
    const std::vector<std::size_t> fine = {0, 1};
    expect_refusal([&] { group.all_to_allv(all, counts, all, fine); }, "all_to_all", "in_counts");
    expect_refusal([&] { group.all_to_allv(all, fine, all, counts); }, "all_to_all", "out_counts");
  });
}

TEST(Counts, RefusesCountsWhoseBytesOverflow) {
  run_ranks(2, [](Context& context) {
    Group& group = *context.world();
    float two[2] = {};
    // Only the root holds the whole buffer, so the other ranks must check the counts alone.
    const std::vector<std::size_t> counts = group.rank() == 0
                                                ? std::vector<std::size_t>{2, kHuge / 4}
                                                : std::vector<std::size_t>{kHuge / 4, 2};
    const Buffer part{two, 2, DType::f32};
    const int other = 1 - group.rank();
    expect_refusal([&] { group.gatherv(part, {}, counts, other); }, "gather", "counts");
    expect_refusal([&] { group.scatterv({}, part, counts, other); }, "scatter", "counts");
  });
}

TEST(Counts, RefusesEqualPartsThatOverflow) {
  run_ranks(4, [](Context& context) {
    Group& group = *context.world();
    float one[1] = {};
    // All four parts together have 2^64 bytes, which wraps around to 0.
    const std::size_t quarter = std::size_t{1} << 60;
    const Buffer part{one, quarter, DType::f32};
    const Buffer nothing{nullptr, 0, DType::f32};
    const int other = (group.rank() + 1) % 4;
    expect_refusal([&] { group.all_gather(part, nothing); }, "all_gather", "input");
    expect_refusal([&] { group.gather(part, nothing, other); }, "gather", "input");
    expect_refusal([&] { group.scatter(nothing, part, other); }, "scatter", "output");
    expect_refusal([&] { group.reduce_scatter(nothing, part, ReduceKind::sum); }, "reduce_scatter",
                   "output");
  });
}

TEST(Counts, AcceptsZeroCounts) {
  run_ranks(2, [](Context& context) {
    Group& group = *context.world();
    const std::vector<std::size_t> counts = {0, 0};
    const Buffer nothing{nullptr, 0, DType::f32};
    group.all_gatherv(nothing, nothing, counts).wait();
    group.all_to_allv(nothing, counts, nothing, counts).wait();
  });
}

}  // namespace
}  // namespace mccl
