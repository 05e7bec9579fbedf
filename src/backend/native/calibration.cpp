#include "backend/native/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/native/group.h"
#include "backend/native/pair_figures.h"
#include "backend/native/shared_cache.h"
#include "backend/native/window_fit.h"
#include "base/coding.h"
#include "base/value_text.h"
#include "kernels/codec/codec.h"
#include "kernels/copy.h"
#include "kernels/reduce.h"
#include "mccl/error.h"

namespace mccl::native {
namespace {

using schedule::Facts;

/// The cost model of a window is fitted to the times of all_reduces of two sizes. kSmall and
/// kCached are these sizes in bytes; the other constants are numbers of calls. Data of the small
/// size fit one cache line. At the cached size, moving the bytes takes longer than synchronising,
/// but the data stay in cache. The warm-up calls of the cached size fill the window once and
/// complete the trial that chooses how to write (write_choice.h).
constexpr std::size_t kSmall = 8;
constexpr int kSmallCalls = 20;
constexpr std::size_t kCached = std::size_t{256} << 10;
constexpr int kCachedCalls = 4;
constexpr int kCachedWarmup = 24;
/// Ratio of the rate of memory to the rate of writes that bypass the cache, if all ranks access
/// memory at the same time. Only the rate of these writes is measured. The rate of memory is lower,
/// because reads and writes alternate: passes over 64 MiB reached 17 to 21 GB/s where the writes
/// reached 26 to 29.
constexpr double kOfWriting = 0.65;
constexpr std::size_t kWritten = std::size_t{2} << 20;
constexpr int kWrites = 5;
/// A row is a broadcast whose schedule sends kRow messages of kRowPiece bytes, one after another.
/// It is repeated kRowTimes times. Each message after the first adds only the time for which the
/// rank itself works on a message, because the latencies of the messages overlap.
constexpr std::size_t kRow = 17;
constexpr std::size_t kRowPiece = 64;
constexpr int kRowTimes = 8;
/// Number of floats that one measurement adds up, or converts to bf16 and back. They fit easily
/// into a core's cache.
constexpr std::size_t kComputed = std::size_t{16} << 10;
constexpr int kComputedTimes = 4;
/// Size in bytes of the messages with which the rate of a link is measured. Sending one takes only
/// some milliseconds even in a slow network.
constexpr std::size_t kStream = std::size_t{256} << 10;
/// The transmission time of such a message is its total time minus the time of a small message, but
/// at least this fraction of the total time. If ranks share a core, both may take equally long.
constexpr double kLeastTransmission = 0.25;

/// A measured fact. If `unit` is not empty, the fact is logged, multiplied by `scale`.
struct MeasuredFact {
  double Facts::*fact;
  double scale = 1;
  std::string_view unit = {};
};
constexpr MeasuredFact kMeasured[] = {
    {&Facts::latency_s, 1e6, "us per link"},
    {&Facts::bytes_per_s, 1e-9, "GB/s per link"},
    {&Facts::shared_latency_s, 1e6, "us per link through shared memory"},
    {&Facts::shared_bytes_per_s, 1e-9, "GB/s per link through shared memory"},
    {&Facts::window_latency_s, 1e6, "us until a write to shared memory is seen"},
    {&Facts::cached_bytes_per_s, 1e-9, "GB/s in cache"},
    {&Facts::memory_bytes_per_s, 1e-9, "GB/s in memory"},
    {&Facts::reduce_bytes_per_s, 1e-9, "GB/s of sums"},
    {&Facts::coding_bytes_per_s, 1e-9, "GB/s to bf16 and back"},
    {&Facts::message_work_s},
    {&Facts::switch_s},
    {&Facts::turn_s},
    {&Facts::shared_cache_bytes},
    {&Facts::ranks_per_core}};

/// Returns facts without measured values: every value listed in kMeasured is 0.
Facts nothing_measured() {
  Facts facts;
  for (const MeasuredFact& each : kMeasured) facts.*each.fact = 0;
  return facts;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Returns the seconds of a call: the median over batches of `times` consecutive calls. Batches are
/// needed because reading the clock takes as long as a small call. Makes `warmup` calls first.
template <typename Call>
double time_of(int times, int warmup, Call call) {
  constexpr int kBatches = 5;
  for (int i = 0; i < warmup; ++i) call();
  std::vector<double> taken;
  for (int batch = 0; batch < kBatches; ++batch) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < times; ++i) call();
    taken.push_back(seconds_between(begin, Clock::now()) / times);
  }
  return median(std::move(taken));
}

/// Returns the seconds of the fastest call, not counting the first. Used for differences between
/// two times, in which delays by other processes would otherwise dominate.
template <typename Call>
double quickest_of(int times, Call call) {
  call();
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < times; ++i) {
    const Clock::time_point begin = Clock::now();
    call();
    least = std::min(least, seconds_between(begin, Clock::now()));
  }
  return least;
}

class Calibration {
 public:
  Calibration(const std::shared_ptr<engine::Engine>& engine, NativeGroup& all)
      : engine_(engine), all_(all), nodes_(engine->nodes()) {}

  void run() {
    Facts mine = nothing_measured();
    const Config& config = engine_->config();
    const bool link_is_given = config.link_latency_us > 0 && config.link_gbit > 0;
    if (!link_is_given) measure_link(mine);
    measure_window(mine);
    if (!engine_->is_one_node()) {
      mine.reduce_bytes_per_s = reduce_rate();
      mine.coding_bytes_per_s = coding_rate();
    }
    mine.ranks_per_core = ranks_per_core();
    const Facts agreed = agree(mine);
    Facts facts = engine_->facts();
    std::vector<std::string> figures;
    for (const auto& [fact, scale, unit] : kMeasured) {
      if (agreed.*fact <= 0) continue;
      facts.*fact = agreed.*fact;
      if (!unit.empty()) figures.push_back(fmt::format("{:.3g} {}", agreed.*fact * scale, unit));
    }
    if (config.link_latency_us > 0) facts.latency_s = config.link_latency_us * 1e-6;
    if (config.link_gbit > 0) facts.bytes_per_s = config.link_gbit * 1e9 / 8;
    // The measured values are the same on all ranks, so only rank 0 logs them.
    if (!figures.empty() && engine_->rank() == 0)
      engine_->log().info("measured: {}", fmt::join(figures, ", "));
    engine_->learn(std::move(facts));
  }

 private:
  double ranks_per_core() const { return std::max(1.0, engine_->ranks_per_core()); }

  /// Returns the two ranks, among them this one, that measure a link together. If there are several
  /// nodes, the two ranks lie on different nodes. All ranks are ordered by their index in their
  /// nodes, and each two successive ranks form a pair. Returns an empty list on a rank without a
  /// partner, which measures nothing.
  std::vector<int> my_pair() const {
    std::vector<int> order(static_cast<std::size_t>(engine_->size()));
    std::iota(order.begin(), order.end(), 0);
    std::vector<int> place(order.size(), 0);
    for (std::size_t r = 0; r < order.size() && !nodes_.empty(); ++r) {
      place[r] = static_cast<int>(std::count(nodes_.begin(), nodes_.begin() + r, nodes_[r]));
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return place[a] < place[b]; });
    const auto mine = std::find(order.begin(), order.end(), engine_->rank()) - order.begin();
    const auto first = mine / 2 * 2;
    if (first + 1 >= static_cast<std::ptrdiff_t>(order.size())) return {};
    return {order[first], order[first + 1]};
  }

  void measure_link(Facts& measured) {
    const std::vector<int> pair = my_pair();
    if (pair.empty()) return;
    NativeGroup group(engine_, engine_->make_group(fmt::format("calibration/pair of {}", pair[0]),
                                                   pair, kPatience));
    std::vector<std::byte> data(kStream);
    const double small = time_of(4, 10, [&] { there_and_back(group, data, 1, 1); });
    const double large = time_of(1, 2, [&] { there_and_back(group, data, kStream, 1); });
    (engine_->is_one_node() ? measured.shared_latency_s : measured.latency_s) = small / 2;
    const double transmission = std::max(large - small, large * kLeastTransmission);
    (engine_->is_one_node() ? measured.shared_bytes_per_s : measured.bytes_per_s) =
        kStream / std::max(1e-9, transmission);
    if (!share_node(pair)) measured.message_work_s = message_work(pair);
  }

  bool share_node(const std::vector<int>& pair) const {
    return !nodes_.empty() &&
           nodes_[static_cast<std::size_t>(pair[0])] == nodes_[static_cast<std::size_t>(pair[1])];
  }

  /// Creates a group of the two ranks. The group's collectives send their data as a row of small
  /// messages through the link, not through shared memory.
  NativeGroup group_of_rows(const std::vector<int>& pair) const {
    const Facts facts = engine_->facts();
    Facts in_rows = facts;
    in_rows.forced = schedule::Algorithm::direct;
    in_rows.chunk_bytes = kRowPiece;
    engine_->learn(std::move(in_rows));
    auto state =
        engine_->make_group(fmt::format("calibration/rows of {}", pair[0]), pair, kPatience);
    engine_->learn(facts);
    return NativeGroup(engine_, std::move(state));
  }

  /// Returns the seconds of a rank's work per message, or 0 if waiting times hide this work. Not
  /// called for ranks that share a node, because no decision depends on the value there, and the
  /// group would first set up a window.
  double message_work(const std::vector<int>& pair) const {
    NativeGroup group = group_of_rows(pair);
    std::vector<std::byte> data(kRow * kRowPiece);
    const CallOptions now{.caller_waits = true};
    const auto row_and_back = [&](std::size_t messages) {
      group.broadcast({data.data(), messages * kRowPiece, DType::u8}, 0, now).wait();
      group.broadcast({data.data(), 1, DType::u8}, 1, now).wait();
    };
    const double one = quickest_of(kRowTimes, [&] { row_and_back(1); });
    const double row = quickest_of(kRowTimes, [&] { row_and_back(kRow); });
    return std::max(0.0, row - one) / static_cast<double>(kRow - 1);
  }

  /// Fits the facts of the window so that the model predicts the measured times.
  void measure_window(Facts& measured) {
    const std::vector<int> members = members_of_my_node(*engine_);
    if (members.size() < 2) return;
    std::optional<NativeGroup> of_node;
    if (!engine_->is_one_node()) {
      of_node.emplace(
          engine_, engine_->make_group(fmt::format("calibration/node of {}", members[0]), members,
                                       kPatience));
    }
    NativeGroup& group = of_node ? *of_node : all_;
    std::vector<float> data(kCached / sizeof(float));
    const CallOptions now{.caller_waits = true};
    const auto part = [&](std::size_t bytes) {
      return Buffer{data.data(), bytes / sizeof(float), DType::f32};
    };
    const auto all_reduce = [&](std::size_t bytes, int times, int warmup) {
      return time_of(times, warmup, [&] {
        group.all_reduce(part(bytes), part(bytes), ReduceKind::max, now).wait();
      });
    };
    const double small = all_reduce(kSmall, kSmallCalls, 2 * kSmallCalls);
    const double flow =
        time_of(kSmallCalls, kSmallCalls, [&] { group.broadcast(part(kSmall), 0, now).wait(); });
    const double cached = all_reduce(kCached, kCachedCalls, kCachedWarmup);
    const Facts facts = engine_->facts_of(*group.state());
    if (facts.window_bytes == 0) return;  // no window could be allocated
    const WindowFit fit(facts, group.size(), ranks_per_core(), kSmall);
    if (ranks_per_core() > 1) {
      measured.switch_s = fit.solve(&Facts::switch_s, Collective::all_reduce, small);
      measured.turn_s = fit.solve(&Facts::turn_s, Collective::broadcast, flow);
    } else {
      measured.window_latency_s =
          fit.solve(&Facts::window_latency_s, Collective::all_reduce, small);
    }
    measured.cached_bytes_per_s = fit.cached_bytes_per_s(kCached, cached - small);
    measured.shared_cache_bytes = static_cast<double>(shared_cache_bytes());
    measured.memory_bytes_per_s = memory_rate(group);
  }

  /// Measures the rate at which this rank adds floats, with which the rate of a codec is compared.
  static double reduce_rate() {
    const std::vector<float> added(kComputed, 1.5F);
    std::vector<float> sum(kComputed, 0.5F);
    const double taken = time_of(kComputedTimes, kComputedTimes, [&] {
      kernels::reduce(DType::f32, ReduceKind::sum, sum.data(), added.data(), sum.data(), kComputed);
    });
    return kComputed * sizeof(float) / std::max(1e-9, taken);
  }

  /// Measures the rate of conversion to bf16 and back, on which the compression `auto` depends.
  static double coding_rate() {
    const Coding coding = mccl::coding_of({Codec::bf16}, 2);
    const std::vector<float> from(kComputed, 1.5F);
    std::vector<float> to(kComputed);
    std::vector<std::byte> blocks(coding.bytes(kComputed, Coded::contribution));
    const double taken = time_of(kComputedTimes, kComputedTimes, [&] {
      kernels::encode(coding, Coded::contribution, DType::f32, from.data(), kComputed,
                      blocks.data());
      kernels::decode(coding, Coded::contribution, DType::f32, blocks.data(), kComputed, to.data());
    });
    return 2 * kComputed * sizeof(float) / std::max(1e-9, taken);
  }

  /// Estimates the rate of memory from writes that all ranks make at the same time.
  static double memory_rate(NativeGroup& group) {
    std::vector<std::byte> from(kCached);
    std::vector<std::byte> to(kWritten);
    std::vector<double> taken;
    for (int i = 0; i < kWrites; ++i) {
      group.barrier({.caller_waits = true}).wait();
      const Clock::time_point begin = Clock::now();
      for (std::size_t at = 0; at < kWritten; at += kCached) {
        kernels::copy_past_cache(to.data() + at, from.data(), kCached);
      }
      taken.push_back(seconds_between(begin, Clock::now()));
    }
    return kOfWriting * static_cast<double>(kWritten) / median(std::move(taken));
  }

  /// Returns the median of each value over the ranks that measured it, and the maximum of
  /// ranks_per_core.
  Facts agree(const Facts& mine) const {
    std::string text;
    for (const MeasuredFact& each : kMeasured) text += fmt::format("{:.4g} ", mine.*each.fact);
    const std::vector<std::string> cards = all_gather_texts(all_, text);
    std::vector<std::vector<double>> values(std::size(kMeasured));
    for (int rank = 0; rank < engine_->size(); ++rank) {
      const auto figures = parse_numbers(cards[static_cast<std::size_t>(rank)]);
      if (!figures || figures->size() != values.size() || std::ranges::min(*figures) < 0) {
        throw CorruptionError(fmt::format(
            "rank {} sent malformed speed measurements; expected {} numbers of at least 0", rank,
            values.size()));
      }
      for (std::size_t i = 0; i < values.size(); ++i) {
        if ((*figures)[i] > 0) values[i].push_back((*figures)[i]);
      }
    }
    Facts agreed;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto fact = kMeasured[i].fact;
      agreed.*fact =
          fact == &Facts::ranks_per_core ? std::ranges::max(values[i]) : median(values[i]);
    }
    return agreed;
  }

  const std::shared_ptr<engine::Engine>& engine_;
  NativeGroup& all_;
  const std::vector<int>& nodes_;
};

}  // namespace

void calibrate(const std::shared_ptr<engine::Engine>& engine) {
  if (engine->size() == 1) return;
  warn_of_two_copies(*engine);
  if (!engine->config().calibrate) return;
  engine->count_calls(false);
  std::vector<int> everyone(static_cast<std::size_t>(engine->size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  NativeGroup all(engine, engine->make_group("calibration", everyone, kPatience));
  try_equal_ways(engine, all);
  choose_copies(engine, all);
  Calibration(engine, all).run();
  measure_cables(engine, all);
  engine->count_calls(true);
}

}  // namespace mccl::native
