// Tests that ranks that share memory get the same results as ranks that use tcp, for any algorithm
// and count.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>

#include "support/ranks.h"

namespace mccl {
namespace {

using testing::run_ranks;
using testing::test_config;

Config config_with(const std::string& transport, const std::string& algorithm = "auto") {
  Config config = test_config();
  config.transport = transport;
  config.algorithm = algorithm;
  config.calibrate = false;
  return config;
}

std::function<Config(int)> every_rank(const Config& config) {
  return [config](int) { return config; };
}

using Bytes = std::vector<std::byte>;

/// The result of one rank. `exact` is false if its bits depend on the order of summation.
struct Outcome {
  std::string what;
  bool exact = true;
  bool equal_on_all_ranks = false;
  Bytes bytes;
};

/// A call with random parameters, which are equal on all ranks.
class RandomCall {
 public:
  RandomCall(std::mt19937& random, int ranks) : ranks_(static_cast<std::size_t>(ranks)) {
    static constexpr DType kTypes[] = {DType::u8,  DType::i16, DType::i32,
                                       DType::i64, DType::f32, DType::bf16};
    static constexpr ReduceKind kKinds[] = {ReduceKind::sum, ReduceKind::avg, ReduceKind::max};
    what_ = random() % 10;
    dtype_ = kTypes[random() % std::size(kTypes)];
    kind_ = kKinds[random() % std::size(kKinds)];
    root_ = static_cast<int>(random() % ranks_);
    in_place_ = random() % 2 == 0;
    seed_ = random();
    // Small and large sizes are equally frequent; the largest exceed a whole window.
    const std::size_t most = (std::size_t{1} << random() % 23) / size_of(dtype_);
    const bool shared_out = what_ >= 3;
    count_ = random() % (most + 1) / (shared_out ? ranks_ : 1);
    for (std::size_t i = 0; i < ranks_; ++i) {
      counts_.push_back(random() % 4 == 0 ? 0 : random() % (count_ + 1));
    }
    total_ = std::accumulate(counts_.begin(), counts_.end(), std::size_t{0});
  }

  Outcome run(Group& group) const {
    const auto rank = static_cast<std::size_t>(group.rank());
    const bool at_root = group.rank() == root_;
    const std::size_t mine = counts_[rank];
    const std::size_t begin =
        std::accumulate(counts_.begin(), counts_.begin() + group.rank(), std::size_t{0});
    Bytes in, out;
    Outcome outcome;
    outcome.exact = is_integer(dtype_);
    switch (what_) {
      case 0:
        in = input(rank, count_);
        out = in_place_ ? in : empty(count_);
        group.all_reduce(in_place_ ? buffer(out) : buffer(in), buffer(out), kind_).wait();
        outcome.equal_on_all_ranks = true;
        break;
      case 1:
        in = input(rank, count_);
        out = in_place_ ? in : empty(at_root ? count_ : 0);
        group.reduce(in_place_ ? buffer(out) : buffer(in), buffer(out), kind_, root_).wait();
        break;
      case 2:
        out = input(rank, count_);
        group.broadcast(buffer(out), root_).wait();
        outcome.equal_on_all_ranks = outcome.exact = true;
        break;
      case 3:
        in = input(rank, mine);
        out = empty(total_);
        if (in_place_) std::copy(in.begin(), in.end(), at(out, begin));
        group.all_gatherv(in_place_ ? part(out, begin, mine) : buffer(in), buffer(out), counts_)
            .wait();
        outcome.equal_on_all_ranks = outcome.exact = true;
        break;
      case 4:
        in = input(rank, mine);
        out = empty(at_root ? total_ : 0);
        if (at_root && in_place_) std::copy(in.begin(), in.end(), at(out, begin));
        group
            .gatherv(at_root && in_place_ ? part(out, begin, mine) : buffer(in), buffer(out),
                     counts_, root_)
            .wait();
        outcome.exact = true;
        break;
      case 5:
        in = at_root ? input(rank, total_) : Bytes();
        out = empty(mine);
        group
            .scatterv(buffer(in), at_root && in_place_ ? part(in, begin, mine) : buffer(out),
                      counts_, root_)
            .wait();
        if (at_root && in_place_) out = in;
        outcome.exact = true;
        break;
      case 6:
        in = input(rank, total_);
        out = empty(mine);
        group
            .reduce_scatterv(buffer(in), in_place_ ? part(in, begin, mine) : buffer(out), counts_,
                             kind_)
            .wait();
        // An in-place reduce_scatter leaves the rest of the input undefined.
        if (in_place_) out.assign(at(in, begin), at(in, begin + mine));
        break;
      case 7:
        in = input(rank, count_ * ranks_);
        out = empty(count_ * ranks_);
        group.all_to_all(buffer(in), buffer(out)).wait();
        outcome.exact = true;
        break;
      case 8:
        group.barrier().wait();
        break;
      default:
        in = input(rank, count_);
        out = empty(count_);
        send_around(group, in, out);
        outcome.exact = true;
    }
    outcome.what = describe();
    outcome.bytes = std::move(out);
    return outcome;
  }

  std::string describe() const {
    static constexpr const char* kNames[] = {
        "all_reduce", "reduce",         "broadcast",  "all_gather", "gather",
        "scatter",    "reduce_scatter", "all_to_all", "barrier",    "send"};
    std::string text = std::string(kNames[what_]) + " of " + std::to_string(count_) + " " +
                       std::string(name_of(dtype_)) + " " + std::string(name_of(kind_)) + " root " +
                       std::to_string(root_) + (in_place_ ? " in place" : "") + " counts";
    for (const std::size_t count : counts_) text += " " + std::to_string(count);
    return text;
  }

 private:
  /// Returns numbers; sums of a few of the integers are exact in every type.
  Bytes input(std::size_t rank, std::size_t count) const {
    Bytes bytes(count * size_of(dtype_));
    std::mt19937 random(seed_ + static_cast<unsigned>(rank));
    if (dtype_ == DType::f32) {
      for (std::size_t i = 0; i < count; ++i) {
        const float value = static_cast<float>(random()) * 1e-9f;
        std::memcpy(bytes.data() + 4 * i, &value, 4);
      }
      return bytes;
    }
    for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
      // The mask keeps bfloat16 numbers positive and finite as well.
      const std::uint32_t value = random() & 0x3fff3fff;
      std::memcpy(bytes.data() + i, &value, 4);
    }
    return bytes;
  }
  Bytes empty(std::size_t count) const { return Bytes(count * size_of(dtype_), std::byte{0xee}); }
  Buffer buffer(Bytes& bytes) const {
    return {bytes.data(), bytes.size() / size_of(dtype_), dtype_};
  }
  Buffer part(Bytes& bytes, std::size_t begin, std::size_t count) const {
    return {bytes.data() + begin * size_of(dtype_), count, dtype_};
  }
  Bytes::iterator at(Bytes& bytes, std::size_t element) const {
    return bytes.begin() + static_cast<std::ptrdiff_t>(element * size_of(dtype_));
  }

  void send_around(Group& group, Bytes& in, Bytes& out) const {
    const int ranks = group.size();
    const Work sent = group.send(buffer(in), (group.rank() + 1) % ranks, seed_);
    group.recv(buffer(out), (group.rank() + ranks - 1) % ranks, seed_).wait();
    sent.wait();
  }

  std::size_t ranks_;
  unsigned what_ = 0;
  DType dtype_ = DType::i32;
  ReduceKind kind_ = ReduceKind::sum;
  int root_ = 0;
  bool in_place_ = false;
  unsigned seed_ = 0;
  std::size_t count_ = 0;
  std::vector<std::size_t> counts_;
  std::size_t total_ = 0;
};

using Outcomes = std::vector<std::vector<Outcome>>;  // one list per rank

Outcomes outcomes_of(int ranks, int calls, const Config& config) {
  Outcomes outcomes(static_cast<std::size_t>(ranks));
  run_ranks(
      ranks,
      [&](Context& context) {
        std::mt19937 random(static_cast<unsigned>(ranks));
        for (int i = 0; i < calls; ++i) {
          const RandomCall call(random, ranks);
          outcomes[static_cast<std::size_t>(context.rank())].push_back(call.run(*context.world()));
        }
      },
      every_rank(config));
  return outcomes;
}

struct Case {
  int ranks;
  const char* algorithm;
  int calls;
};

class SharedMemory : public ::testing::TestWithParam<Case> {};

TEST_P(SharedMemory, GivesTheSameAsTcp) {
  const auto [ranks, algorithm, calls] = GetParam();
  const Outcomes shared = outcomes_of(ranks, calls, config_with("shm", algorithm));
  const Outcomes tcp = outcomes_of(ranks, calls, config_with("tcp"));
  for (std::size_t i = 0; i < shared[0].size(); ++i) {
    for (std::size_t rank = 0; rank < shared.size(); ++rank) {
      const Outcome& outcome = shared[rank][i];
      ASSERT_EQ(outcome.bytes.size(), tcp[rank][i].bytes.size());
      if (outcome.exact) {
        ASSERT_TRUE(outcome.bytes == tcp[rank][i].bytes)
            << "rank " << rank << " of " << ranks << ", call " << i << ": " << outcome.what;
      }
      if (outcome.equal_on_all_ranks) {
        ASSERT_TRUE(outcome.bytes == shared[0][i].bytes)
            << "rank " << rank << " of " << ranks << ", call " << i << ": " << outcome.what;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Calls, SharedMemory,
    ::testing::Values(Case{2, "auto", 80}, Case{2, "one_shot", 60}, Case{2, "two_shot", 60},
                      Case{3, "one_shot", 60}, Case{3, "two_shot", 60}, Case{4, "auto", 60},
                      Case{5, "two_shot", 40}, Case{8, "auto", 40}, Case{8, "one_shot", 40},
                      Case{2, "ring", 40}, Case{4, "direct", 40}),
    [](const auto& info) {
      return std::string(info.param.algorithm) + "_" + std::to_string(info.param.ranks);
    });

}  // namespace
}  // namespace mccl
