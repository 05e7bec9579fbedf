#include "base/flight_recorder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/call_sites.h"
#include "base/version.h"

namespace mccl {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kStates[] = {"queued", "running", "done", "failed", "enqueued"};

/// Converts the times of entries to nanoseconds since 1970. The duration of a cycle is derived from
/// two readings of cycle counter and clock: when the recorder was made, and now.
class Times {
 public:
  Times(Clock::time_point made, std::int64_t made_cycles)
      : made_cycles_(made_cycles), made_ns_(nanoseconds_of(made)) {
    const std::int64_t cycles = cycle_count() - made_cycles;
    steady_ns_ = nanoseconds_of(Clock::now());
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    unix_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    if (cycles > 0) ns_per_cycle_ = static_cast<double>(steady_ns_ - made_ns_) / cycles;
  }
  std::int64_t unix_ns() const { return unix_ns_; }
  std::int64_t steady_ns() const { return steady_ns_; }
  std::int64_t of(std::int64_t time, bool in_cycles) const {
    const std::int64_t steady =
        in_cycles
            ? made_ns_ + std::llround(ns_per_cycle_ * static_cast<double>(time - made_cycles_))
            : time;
    return unix_ns_ + (steady - steady_ns_);
  }

 private:
  const std::int64_t made_cycles_;
  const std::int64_t made_ns_;
  std::int64_t steady_ns_ = 0;
  std::int64_t unix_ns_ = 0;
  double ns_per_cycle_ = 0;
};

bool is_message(const FlightEntry& entry) {
  return entry.collective == Collective::send || entry.collective == Collective::recv;
}

/// The transports that the call uses, joined by "+". The algorithms one_shot and two_shot use the
/// node's shared memory, not links.
std::string transport_of(const FlightEntry& entry, const FlightGroup& group,
                         std::string_view algorithm) {
  if (algorithm == "one_shot" || algorithm == "two_shot") return "shm";
  if (algorithm == "mpi") return "mpi";
  std::set<std::string> used;
  for (std::size_t member = 0; member < group.transports.size(); ++member) {
    const bool counts = !is_message(entry) || static_cast<int>(member) == entry.peer;
    if (counts && !group.transports[member].empty()) used.insert(group.transports[member]);
  }
  return fmt::format("{}", fmt::join(used, "+"));
}

Json json_of(const FlightEntry& entry, std::string_view algorithm, const FlightGroup* group,
             const Times& times) {
  Json call = {{"group", entry.group},          {"call", name_of(entry.collective)},
               {"sequence", entry.sequence},    {"bytes", entry.bytes},
               {"dtype", name_of(entry.dtype)}, {"state", kStates[entry.state]}};
  const Collective kind = entry.collective;
  if (kind == Collective::all_reduce || kind == Collective::reduce ||
      kind == Collective::reduce_scatter)
    call["op"] = name_of(entry.kind);
  if (entry.peer >= 0) call[is_message(entry) ? "peer" : "root"] = entry.peer;
  if (!algorithm.empty()) call["algorithm"] = algorithm;
  if (group) call["transport"] = transport_of(entry, *group, algorithm);
  const auto add_time = [&](const char* name, std::int64_t time) {
    if (time != 0) call[name] = times.of(time, entry.in_cycles);
  };
  add_time("submitted_ns", entry.submitted);
  add_time("started_ns", entry.started);
  add_time("ended_ns", entry.ended);
  if (entry.waits_for >= 0) call["waits_for"] = entry.waits_for;
  if (const std::string_view site = text_of_call_site(entry.site); !site.empty())
    call["site"] = site;
  return call;
}

}  // namespace

FlightRecorder::FlightRecorder(FlightOrigin origin)
    : origin_(std::move(origin)),
      made_(Clock::now()),
      made_cycles_(cycle_count()),
      slots_(kCalls) {}

std::uint32_t FlightRecorder::add_group(FlightGroup group) {
  const std::lock_guard lock(mutex_);
  if (groups_.size() >= kMostGroups) groups_.erase(groups_.begin());
  groups_.emplace(group_count_, std::move(group));
  return group_count_++;
}

std::uint8_t FlightRecorder::index_of(std::string_view algorithm) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(algorithms_, algorithm);
  const auto index = found - algorithms_.begin();
  if (index > 255) return 0;
  if (found == algorithms_.end()) algorithms_.push_back(algorithm);
  return static_cast<std::uint8_t>(index);
}

std::string_view FlightRecorder::algorithm_at(std::size_t index) const {
  const std::lock_guard lock(mutex_);
  return index < algorithms_.size() ? algorithms_[index] : std::string_view();
}

std::optional<FlightEntry> FlightRecorder::read(std::uint64_t number) const noexcept {
  const Slot& slot = slots_[number % kCalls];
  const std::uint64_t version = slot.version.load(std::memory_order_acquire);
  if (!contains(version, number)) return std::nullopt;
  Words words;
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = slot.words[i].load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (slot.version.load(std::memory_order_relaxed) != version) return std::nullopt;
  return unpack(words);
}

FlightEntry FlightRecorder::unpack(const Words& words) {
  const auto bits = [&](std::size_t word, int from, int count) {
    return words[word] >> from & ((std::uint64_t{1} << count) - 1);
  };
  FlightEntry entry;
  entry.sequence = bits(0, 0, kSiteBit);
  entry.site = static_cast<std::uint16_t>(bits(0, kSiteBit, 16));
  entry.bytes = words[1];
  entry.submitted = static_cast<std::int64_t>(words[2]);
  entry.started = static_cast<std::int64_t>(words[3]);
  entry.ended = static_cast<std::int64_t>(words[4]);
  entry.group = static_cast<std::uint32_t>(bits(5, 0, 32));
  entry.algorithm = static_cast<std::uint8_t>(bits(5, 32, 8));
  entry.collective = static_cast<Collective>(bits(5, 40, 4));
  entry.kind = static_cast<ReduceKind>(bits(5, 44, 4));
  entry.dtype = static_cast<DType>(bits(5, 48, 8));
  entry.state = static_cast<FlightEntry::State>(bits(5, 56, 4));
  entry.in_cycles = bits(5, 60, 1) != 0;
  entry.peer = static_cast<std::int32_t>(bits(6, 0, 32));
  entry.waits_for = static_cast<std::int32_t>(bits(6, 32, 32));
  return entry;
}

std::string FlightRecorder::to_json(std::string_view reason) const {
  const Times times(made_, made_cycles_);
  const std::uint64_t end = size();
  const std::lock_guard lock(mutex_);
  Json groups = Json::array();
  for (const auto& [index, group] : groups_) {
    groups.push_back({{"index", index},
                      {"name", group.name},
                      {"id", fmt::format("{:016x}", group.id)},
                      {"rank", group.rank},
                      {"members", group.members}});
  }
  Json calls = Json::array();
  for (std::uint64_t number = end - std::min<std::uint64_t>(end, kCalls); number < end; ++number) {
    const std::optional<FlightEntry> entry = read(number);
    if (!entry) continue;
    const auto group = groups_.find(entry->group);
    calls.push_back(json_of(*entry, algorithms_[entry->algorithm],
                            group == groups_.end() ? nullptr : &group->second, times));
    calls.back()["number"] = number;
  }
  const Json record = {{"format", "mccl flight record"},
                       {"version", 1},
                       {"mccl", version()},
                       {"reason", reason},
                       {"job", origin_.job},
                       {"rank", origin_.rank},
                       {"size", origin_.size},
                       {"host", origin_.host},
                       {"pid", ::getpid()},
                       {"unix_ns", times.unix_ns()},
                       {"steady_ns", times.steady_ns()},
                       {"calls_made", end},
                       {"groups", std::move(groups)},
                       {"calls", std::move(calls)}};
  return record.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace mccl
