#include <algorithm>
#include <cmath>

#include "schedule/choose.h"

namespace mccl::schedule {
namespace {

constexpr FactInfo kFacts[] = {
    {"latency_s", "s", "an empty message through a link", &Facts::latency_s},
    {"bytes_per_s", "B/s", "a link, one direction", &Facts::bytes_per_s},
    {"reduce_bytes_per_s", "B/s", "floats that a rank adds in cache", &Facts::reduce_bytes_per_s},
    {"coding_bytes_per_s", "B/s", "floats that a rank converts to or from bf16 in cache",
     &Facts::coding_bytes_per_s},
    {"shared_latency_s", "s", "an empty message through a link in shared memory",
     &Facts::shared_latency_s},
    {"shared_bytes_per_s", "B/s", "a link in shared memory, one direction",
     &Facts::shared_bytes_per_s},
    {"message_work_s", "s",
     "part of latency_s in which the rank handles the message and does not wait",
     &Facts::message_work_s},
    {"shared_message_work_s", "s", "part of shared_latency_s in which the rank does not wait",
     &Facts::shared_message_work_s},
    {"window_latency_s", "s", "from an arrival until the node's other ranks see it",
     &Facts::window_latency_s},
    {"cached_bytes_per_s", "B/s", "data that a rank copies or adds between caches",
     &Facts::cached_bytes_per_s},
    {"memory_bytes_per_s", "B/s", "memory that a rank reads and writes, while all cores do so",
     &Facts::memory_bytes_per_s},
    {"shared_cache_bytes", "B", "the caches that the cores of a node share",
     &Facts::shared_cache_bytes},
    {"ranks_per_core", "", "on the node where it is highest", &Facts::ranks_per_core},
    {"switch_s", "s", "a wait for other ranks on a shared core, for each rank of that core",
     &Facts::switch_s},
    {"turn_s", "s", "a call without waits on a shared core, for each rank of that core",
     &Facts::turn_s},
    {"chunk_bytes", "B", "the largest message", &Facts::chunk_bytes},
    {"small_bytes", "B", "all_reduce below this size uses direct", &Facts::small_bytes},
    {"window_bytes", "B", "data that a rank can publish at a time; 0: no window",
     &Facts::window_bytes},
};

constexpr double kMostCounted = 1e15;

}  // namespace

std::span<const FactInfo> fact_table() { return kFacts; }

const FactInfo* find_fact(std::string_view name) {
  const auto* const found = std::ranges::find(kFacts, name, &FactInfo::name);
  return found == std::end(kFacts) ? nullptr : found;
}

double value_of(const Facts& facts, const FactInfo& info) {
  return std::visit([&](auto field) { return static_cast<double>(facts.*field); }, info.field);
}

bool is_possible(const FactInfo& info, double value) {
  if (!std::isfinite(value) || value < 0) return false;
  if (info.field == decltype(info.field)(&Facts::chunk_bytes)) {
    return value >= 1 && value <= kMostCounted;
  }
  if (info.field == decltype(info.field)(&Facts::ranks_per_core)) return value >= 1;
  if (std::holds_alternative<std::size_t Facts::*>(info.field)) return value <= kMostCounted;
  return value > 0;
}

void assign(Facts& facts, const FactInfo& info, double value) {
  std::visit(
      [&](auto field) {
        using Value = std::remove_reference_t<decltype(facts.*field)>;
        facts.*field = static_cast<Value>(value);
      },
      info.field);
}

}  // namespace mccl::schedule
