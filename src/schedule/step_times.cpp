#include "schedule/step_times.h"

#include <algorithm>
#include <iterator>

#include "kernels/copy.h"
#include "schedule/algorithm_table.h"
#include "schedule/layout.h"

namespace mccl::schedule {
namespace {

// Assumptions about links. They were set when schedules first ran over TCP between processes of one
// machine; those measurements were not kept. Halving or doubling an assumption changes at most 2 %
// of the choices, and the algorithm then chosen takes at most 10 % longer.

/// If several ranks send to one rank at the same time, their messages take longer: by the fraction
/// kCrowding for each sender after the first, and by kMostCrowding at most.
constexpr double kCrowding = 0.03;
constexpr double kMostCrowding = 0.2;
/// Pieces of more than kCachedPiece bytes have left the core's cache when the next stage reads
/// them, so each of their bytes takes kUncachedPiece times as long. kCachedPiece is half of the
/// core's cache on the machine where the value was fitted.
constexpr double kCachedPiece = 512 << 10;
constexpr double kUncachedPiece = 1.1;
/// A fold runs at the rate of memory if its operands have more bytes than this in total. Copies and
/// codecs do so in calls with more bytes of data than this.
constexpr double kCachedOperands = 4 << 20;
/// Extra time for data that is kept in scratch memory and forwarded, as a fraction of the time of
/// its transfer.
constexpr double kKeeping = 0.5;

// Assumptions about windows, fitted to the 127 results of `mccl bench all` with two to four
// processes on two cores of an EPYC 9004. Doubling or halving an assumption changes the algorithm
// in few of 1274 examined cases: the ramp of spilled() or kCrowdedMemory in one, kArrival in two,
// and kFlow (cost.cpp) in 16.

/// Both times are in units of Facts::window_latency_s. kArrival is the time that each other rank of
/// the node adds to StepTimes::meeting(). kPiece is the result of StepTimes::piece(). They are
/// assumed, because a measurement with two ranks cannot separate them from the latency. With more
/// ranks than cores, the time of a process switch hides them.
constexpr double kArrival = 0.5;
constexpr double kPiece = 1;
/// Slowdown of memory accesses if processes take turns on a core, because they evict each other's
/// data from its caches.
constexpr double kCrowdedMemory = 1.3;

/// Returns the fraction of the buffers that is read from memory. `share` is the size of all buffers
/// relative to the shared cache. The fraction is 0 up to half of the cache, because the other half
/// holds the windows and all other data. It is 0.5 if the buffers are as large as the cache, 1 if
/// they are at least twice as large, and linear in between.
double spilled(double share) { return std::clamp(share < 1 ? share - 0.5 : share / 2, 0.0, 1.0); }

/// The time that each codec takes relative to bf16, whose rate each job measures, in the order of
/// Codec. The ratios are means of encoding and decoding, from `make bench` on an EPYC 9004.
constexpr double kOfBf16[] = {1, 1, 1, 1.2, 1.8, 1.8, 1.2, 2.7};
static_assert(std::size(kOfBf16) == kCodecCount);

std::size_t largest_node(const Problem& p) {
  std::size_t most = 1;
  for (const std::vector<int>& node : all_nodes(p)) most = std::max(most, node.size());
  return most;
}

}  // namespace

StepTimes::StepTimes(const Problem& problem, std::size_t element_bytes, const Facts& facts,
                     double scale)
    : problem_(problem),
      element_bytes_(element_bytes),
      facts_(facts),
      scale_(scale),
      neighbours_(problem.nodes.empty() ? 0 : largest_node(problem) - 1) {
  const bool in_shared_memory = static_cast<int>(neighbours_) + 1 == problem.size;
  latency_ = in_shared_memory ? facts.shared_latency_s : facts.latency_s;
  // A rank spends at most the latency of a message on handling it.
  work_ = std::min(latency_, in_shared_memory ? facts.shared_message_work_s : facts.message_work_s);
  // Along cables, walk() adds the time of the bytes on each cable, so the link itself adds none.
  byte_ = facts.cables ? 0
                       : 1 / (in_shared_memory ? facts.shared_bytes_per_s / facts.ranks_per_core
                                               : facts.bytes_per_s);
}

double StepTimes::message(double bytes) const {
  return work_ + bytes * byte_ * (bytes <= kCachedPiece ? 1 : kUncachedPiece);
}

double StepTimes::crowding(int flows) const {
  return 1 + std::min(kMostCrowding, kCrowding * std::max(0, flows - 1));
}

double StepTimes::keeping(const Schedule& schedule) const {
  if (is_reduction(problem_.collective)) return 0;
  double kept = 0;
  for (const Step& step : schedule.steps) {
    if (step.kind == StepKind::send && step.src.space == Space::scratch) kept += bytes(step.src);
  }
  return kKeeping * kept * byte_;
}

double StepTimes::arithmetic(const Step& step) const {
  if (step.kind == StepKind::recv_reduce) return bytes(step.dst) / facts_.reduce_bytes_per_s;
  if (step.kind != StepKind::fold) return 0;
  const double operands = bytes(step.src);
  const double uncached = facts_.cached_bytes_per_s / facts_.memory_bytes_per_s;
  return operands / facts_.reduce_bytes_per_s *
         (operands <= kCachedOperands ? 1 : std::max(1.0, uncached));
}

double StepTimes::total_bytes() const {
  return static_cast<double>(std::max(problem_.count, total(problem_.counts)) * element_bytes_);
}

double StepTimes::local(const Step& step) const {
  const auto elements = [&](const Region& region, std::size_t times = 1) {
    return scale_ * static_cast<double>(region.count * element_bytes_ * times);
  };
  const double from_memory = total_bytes() > kCachedOperands ? 1 / facts_.memory_bytes_per_s : 0;
  const double coding =
      kOfBf16[static_cast<std::size_t>(problem_.coding.codec)] / facts_.coding_bytes_per_s +
      from_memory;
  switch (step.kind) {
    case StepKind::copy:
      return elements(step.dst) * (window_byte_ > 0
                                       ? window_byte_
                                       : std::max(1 / facts_.cached_bytes_per_s, from_memory));
    case StepKind::encode:
    case StepKind::decode:
      return coding * elements(step.dst);
    case StepKind::fold_coded:
      return coding * (elements(step.dst, step.operands) +
                       (holds_blocks(step.dst.space) ? elements(step.dst) : 0));
    default:
      return copied(step) * window_byte_;
  }
}

/// If several ranks share a core, each of them must run on it before it can arrive. This costs one
/// process switch for each of these ranks.
double StepTimes::meeting() const {
  const double turns = facts_.ranks_per_core > 1 ? facts_.ranks_per_core : 0;
  return facts_.window_latency_s * (1 + kArrival * static_cast<double>(neighbours_)) +
         turns * facts_.switch_s;
}

double StepTimes::piece() const { return kPiece * facts_.window_latency_s; }

double StepTimes::flow() const {
  const double turns = facts_.ranks_per_core > 1 ? facts_.ranks_per_core : 0;
  return facts_.window_latency_s + turns * facts_.turn_s;
}

double StepTimes::copied(const Step& step) const {
  switch (step.kind) {
    case StepKind::publish:
      return bytes(step.src);
    case StepKind::copy:
    case StepKind::read:
      return bytes(step.dst);
    case StepKind::read_fold:
      return static_cast<double>(neighbours_) * bytes(step.dst);
    default:
      return 0;
  }
}

/// Caches and memory work at the same time, so the slower one determines the time.
double StepTimes::handling(const Handled& handled) const {
  const double copying = handled.copied / facts_.cached_bytes_per_s;
  const double crowd = facts_.ranks_per_core > 1 ? kCrowdedMemory : 1;
  const double from_memory = crowd * handled.of_memory / facts_.memory_bytes_per_s;
  const double share =
      static_cast<double>(neighbours_ + 1) * handled.held / facts_.shared_cache_bytes;
  return facts_.ranks_per_core * (copying + spilled(share) * std::max(0.0, from_memory - copying));
}

void StepTimes::set_window_rate(double copied) {
  Handled handled = buffers(problem_.root);
  handled.copied = copied;
  window_byte_ = copied > 0 ? handling(handled) / copied : 0;
}

/// A cache line is read before it is written. In place, the read of the input has already fetched
/// the line. The copy of a rank's own part into a gathered result is cheap for the same reason.
/// Plain copies of large results bypass the cache.
Handled StepTimes::buffers(int rank) const {
  Problem problem = problem_;
  problem.rank = rank;
  const Layout layout = layout_of(problem);
  const auto given = static_cast<double>(layout.input_count * element_bytes_);
  const auto taken = static_cast<double>(layout.output_count * element_bytes_);
  const bool gathers = one_of(problem.collective, Collective::all_gather, Collective::gather);
  const bool past_cache = !problem.in_place && problem.collective != Collective::broadcast &&
                          total_bytes() >= kernels::kLargeResultBytes;
  const double own = layout.aliased || gathers ? std::min(given, taken) : 0;
  const double written =
      is_reduction(problem.collective) ? 2 * taken - own : (past_cache ? 1.5 : 2) * (taken - own);
  return {.of_memory = given + written, .held = given + taken - own};
}

}  // namespace mccl::schedule
