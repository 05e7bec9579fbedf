#include <algorithm>
#include <cmath>

#include "schedule/choose.h"

namespace mccl::schedule {
namespace {

constexpr FactInfo kFacts[] = {
    {"latency_s", "s", "time of an empty message through a link", &Facts::latency_s},
    {"bytes_per_s", "B/s", "rate of a link in one direction", &Facts::bytes_per_s},
    {"reduce_bytes_per_s", "B/s", "rate at which a rank adds floats in its cache",
     &Facts::reduce_bytes_per_s},
    {"coding_bytes_per_s", "B/s",
     "rate at which a rank converts floats to or from bf16 in its cache",
     &Facts::coding_bytes_per_s},
    {"shared_latency_s", "s", "time of an empty message through a link in shared memory",
     &Facts::shared_latency_s},
    {"shared_bytes_per_s", "B/s", "rate of a link in shared memory in one direction",
     &Facts::shared_bytes_per_s},
    {"message_work_s", "s",
     "part of latency_s in which the rank handles the message and does not wait",
     &Facts::message_work_s},
    {"shared_message_work_s", "s", "part of shared_latency_s in which the rank does not wait",
     &Facts::shared_message_work_s},
    {"window_latency_s", "s", "time until the node's other ranks see a write to shared memory",
     &Facts::window_latency_s},
    {"cached_bytes_per_s", "B/s", "rate at which a rank copies or adds data between caches",
     &Facts::cached_bytes_per_s},
    {"memory_bytes_per_s", "B/s",
     "rate at which a rank reads and writes memory while all cores do so",
     &Facts::memory_bytes_per_s},
    {"shared_cache_bytes", "B", "size of the caches that the cores of a node share",
     &Facts::shared_cache_bytes},
    {"ranks_per_core", "", "ranks per core, on the node with the most", &Facts::ranks_per_core},
    {"switch_s", "s", "time that each rank on a core adds to a wait, if ranks share cores",
     &Facts::switch_s},
    {"turn_s", "s",
     "time that each rank on a core adds to a call without waits, if ranks share cores",
     &Facts::turn_s},
    {"chunk_bytes", "B", "maximum size of a message", &Facts::chunk_bytes},
    {"small_bytes", "B", "size below which all_reduce uses the algorithm direct",
     &Facts::small_bytes},
    {"window_bytes", "B",
     "bytes that a rank can publish in shared memory at a time; 0: calls use only links",
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
