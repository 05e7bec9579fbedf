// Tests that every rank gets an error, on every path, if ranks divide the same number of elements
// differently.
#include "support/ranks.h"

namespace mccl {
namespace {

using testing::run_failing_ranks;
using testing::run_ranks;
using testing::test_config;

using Counts = std::vector<std::size_t>;

constexpr DType kType = DType::f64;

/// A collective of two ranks. Each rank passes its own counts, which add up to 8.
struct Uneven {
  const char* name;
  void (*call)(Group& group, const Counts& counts);
};

const Uneven kUneven[] = {
    {"all_gather",
     [](Group& group, const Counts& counts) {
       std::vector<double> in(counts[static_cast<std::size_t>(group.rank())]), out(8);
       group.all_gatherv({in.data(), in.size(), kType}, {out.data(), 8, kType}, counts).wait();
     }},
    {"gather",
     [](Group& group, const Counts& counts) {
       std::vector<double> in(counts[static_cast<std::size_t>(group.rank())]), out(8);
       group.gatherv({in.data(), in.size(), kType}, {out.data(), 8, kType}, counts, 0).wait();
     }},
    {"scatter",
     [](Group& group, const Counts& counts) {
       std::vector<double> in(8), out(counts[static_cast<std::size_t>(group.rank())]);
       group.scatterv({in.data(), 8, kType}, {out.data(), out.size(), kType}, counts, 0).wait();
     }},
    {"reduce_scatter",
     [](Group& group, const Counts& counts) {
       std::vector<double> in(8), out(counts[static_cast<std::size_t>(group.rank())]);
       group
           .reduce_scatterv({in.data(), 8, kType}, {out.data(), out.size(), kType}, counts,
                            ReduceKind::sum)
           .wait();
     }},
};

class UnevenCounts : public ::testing::TestWithParam<const char*> {
 protected:
  static Config config(int) {
    Config config = test_config();
    config.transport = GetParam();
    config.calibrate = false;
    config.timeout = 20;
    return config;
  }

  /// Runs `first` on rank 0 and `second` on rank 1, and expects `words` in the errors of both.
  static void expect_mismatch(const std::function<void(Group&)>& first,
                              const std::function<void(Group&)>& second,
                              const std::vector<std::string>& words) {
    const auto errors = run_failing_ranks(
        2,
        [&](Context& context) {
          Group& group = *context.world();
          (group.rank() == 0 ? first : second)(group);
          group.barrier().wait();
          // A rank whose call needed nothing from the other rank gets the error here.
          group.barrier().wait();
        },
        config);
    for (const std::string& error : errors) {
      for (const std::string& word : words) {
        EXPECT_NE(error.find(word), std::string::npos)
            << "'" << error << "' lacks '" << word << "'";
      }
      EXPECT_EQ(error.find("timed out"), std::string::npos) << error;
    }
  }
};

TEST_P(UnevenCounts, WithEqualSumsAreAMismatchOnBothRanks) {
  for (const Uneven& uneven : kUneven) {
    SCOPED_TRACE(uneven.name);
    for (const Counts& theirs : {Counts{2, 6}, Counts{5, 3}}) {
      const auto call = [&uneven](const Counts& counts) {
        return [&uneven, counts](Group& group) { uneven.call(group, counts); };
      };
      expect_mismatch(call({4, 4}), call(theirs),
                      {std::string(uneven.name) + " #1", "with different counts per rank"});
    }
  }
}

TEST_P(UnevenCounts, ThatAreEqualAreAnEvenCall) {
  run_ranks(
      2,
      [](Context& context) {
        Group& group = *context.world();
        std::vector<double> in(4, group.rank() + 1), out(8);
        const ConstBuffer mine{in.data(), 4, kType};
        if (group.rank() == 0) {
          group.all_gather(mine, {out.data(), 8, kType}).wait();
        } else {
          group.all_gatherv(mine, {out.data(), 8, kType}, Counts{4, 4}).wait();
        }
        EXPECT_EQ(out, (std::vector<double>{1, 1, 1, 1, 2, 2, 2, 2}));
      },
      config);
}

TEST_P(UnevenCounts, AnEvenCallAgainstAnUnevenOneIsAMismatchOnBothRanks) {
  const auto even = [](Group& group) {
    std::vector<double> in(8), out(8);
    group.all_to_all({in.data(), 8, kType}, {out.data(), 8, kType}).wait();
  };
  for (const Counts& counts : {Counts{4, 4}, Counts{0, 8}, Counts{8, 0}}) {
    const auto with_counts = [&counts](Group& group) {
      std::vector<double> in(8), out(8);
      group.all_to_allv({in.data(), 8, kType}, counts, {out.data(), 8, kType}, counts).wait();
    };
    expect_mismatch(even, with_counts,
                    {"all_to_all #1 (8 f64)", "all_to_all #1 (f64, counts per rank)"});
  }
}

TEST_P(UnevenCounts, AreRefusedIfTheirSumOverflows) {
  run_ranks(
      3,
      [](Context& context) {
        if (context.rank() != 0) return;
        const std::size_t half = std::size_t{1} << 63;  // overflows to 0 when doubled
        EXPECT_THROW(context.world()->all_gatherv({nullptr, 0, kType}, {nullptr, 0, kType},
                                                  Counts{0, half, half}),
                     InvalidArgument);
      },
      config);
}

INSTANTIATE_TEST_SUITE_P(Transports, UnevenCounts, ::testing::Values("tcp", "shm"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace mccl
