// Implements the functions of record.h that compare the records of ranks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "cli/sight/record.h"

namespace mccl::cli::sight {
namespace {

/// Smallest total delay that is reported, in nanoseconds.
constexpr double kLeastDelay = 1e6;

struct Place {
  const FlightRecord* record = nullptr;
  const RecordedCall* call = nullptr;
};

/// One collective, as recorded by all ranks whose record contains it.
struct MatchedCollective {
  const RecordedGroup* group = nullptr;
  std::vector<Place> places;
};

/// Keyed by the id of the group and the sequence number of the collective.
using Collectives = std::map<std::pair<std::string, long long>, MatchedCollective>;

Collectives match(const std::vector<FlightRecord>& records) {
  Collectives found;
  for (const FlightRecord& record : records) {
    for (const RecordedCall& call : record.calls) {
      if (call.is_message() || call.sequence == 0) continue;
      const RecordedGroup& group = record.groups[call.group];
      MatchedCollective& same = found[{group.id, call.sequence}];
      same.group = &group;
      same.places.push_back({&record, &call});
    }
  }
  return found;
}

/// True if a rank cannot end the collective before all other ranks have begun it.
bool synchronises(const RecordedCall& call) {
  constexpr std::string_view kAll[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                       "barrier"};
  return std::ranges::find(kAll, call.call) != std::end(kAll);
}

std::string call_text(const RecordedCall& call) {
  std::string text = fmt::format("{} ({}{}{} bytes of {}", call.call, call.op,
                                 call.op.empty() ? "" : " of ", call.bytes, call.dtype);
  if (call.root >= 0) text += fmt::format(", root {}", call.root);
  text += ")";
  if (!call.site.empty()) text += " at " + call.site;
  return text;
}

std::string time_text(std::int64_t ns) {
  const std::time_t seconds = ns / 1'000'000'000;
  std::tm utc = {};
  ::gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:06} UTC", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     ns / 1000 % 1'000'000);
}

std::string duration_text(double ns) {
  if (ns < 1e6) return fmt::format("{:.3g} us", ns / 1e3);
  return ns < 1e9 ? fmt::format("{:.3g} ms", ns / 1e6) : fmt::format("{:.4g} s", ns / 1e9);
}

/// Returns text such as "Rank 1" or "Ranks 0, 2".
std::string ranks_text(const std::set<int>& ranks) {
  return fmt::format("Rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

/// Compares sizes only for collectives in which all ranks must pass the same size.
bool differ(const RecordedCall& a, const RecordedCall& b) {
  const bool same_size = a.call == "all_reduce" || a.call == "broadcast" || a.call == "reduce";
  return a.call != b.call || a.dtype != b.dtype || a.op != b.op || a.root != b.root ||
         (same_size && a.bytes != b.bytes);
}

/// Reports the first collective of each group that differs between ranks.
void find_differences(const Collectives& collectives, std::vector<std::string>& found) {
  std::set<std::string> groups;
  for (const auto& [key, collective] : collectives) {
    if (groups.contains(key.first)) continue;
    const Place& first = collective.places.front();
    for (const Place& other : collective.places) {
      if (!differ(*first.call, *other.call)) continue;
      groups.insert(key.first);
      found.push_back(fmt::format(
          "Call {} of group '{}' differs: rank {} called {}, rank {} called {}, at {}.", key.second,
          collective.group->name, first.record->rank, call_text(*first.call), other.record->rank,
          call_text(*other.call), time_text(other.call->arrived())));
      break;
    }
  }
}

/// Null if the rank's record has none.
const RecordedCall* last_of(const FlightRecord& record, const std::string& group_id) {
  const RecordedCall* last = nullptr;
  for (const RecordedCall& call : record.calls) {
    if (!call.is_message() && record.groups[call.group].id == group_id &&
        (!last || call.sequence > last->sequence))
      last = &call;
  }
  return last;
}

/// `last` is null if the rank made no call in the group.
std::string absence(const FlightRecord& record, const RecordedCall* last) {
  if (!last) return fmt::format("Rank {} made no call in that group.", record.rank);
  return fmt::format("The last call of rank {} in that group, number {}, was {}{}.", record.rank,
                     last->sequence, call_text(*last),
                     last->ended == 0 ? "" : ", which ended at " + time_text(last->ended));
}

/// Describes a collective that all ranks began, but that did not end on all ranks.
std::string unfinished(const MatchedCollective& collective) {
  const RecordedCall& first = *collective.places.front().call;
  std::string text =
      fmt::format("Call {} of group '{}', {}, did not end on all ranks:", first.sequence,
                  collective.group->name, call_text(first));
  for (const Place& place : collective.places) {
    text += fmt::format("{} rank {} {}", &place == &collective.places.front() ? "" : ",",
                        place.record->rank, place.call->state);
    if (place.call->waits_for < 0) continue;
    // Two records may disagree about the members of a group, because anyone can write such files.
    // So the index into the members is valid only for the group of the same record.
    const RecordedGroup& group = place.record->groups[place.call->group];
    const auto member = static_cast<std::size_t>(place.call->waits_for);
    text += fmt::format(", waiting for rank {}", group.members[member]);
  }
  return text + ".";
}

/// Reports only the first such collective of each group, because the later ones follow from it.
void find_absences(const Collectives& collectives, const std::vector<FlightRecord>& records,
                   std::vector<std::string>& found) {
  std::set<std::string> groups;
  for (const auto& [key, collective] : collectives) {
    const bool all_made_it = collective.places.size() == collective.group->members.size();
    const bool is_over = std::ranges::all_of(collective.places, [&](const Place& place) {
      return place.call->state == "done" || (all_made_it && place.call->is_on_device());
    });
    if (is_over || groups.contains(key.first)) continue;
    std::set<int> present;
    std::int64_t since = INT64_MAX;
    std::int64_t until = 0;
    for (const Place& place : collective.places) {
      present.insert(place.record->rank);
      since = std::min(since, place.call->arrived());
      until = std::max(until, place.call->ended == 0 ? place.record->written : place.call->ended);
    }
    std::set<int> absent;
    std::set<int> unknown;
    std::string details;
    for (const int member : collective.group->members) {
      if (present.contains(member)) continue;
      const auto record = std::ranges::find(records, member, &FlightRecord::rank);
      if (record == records.end()) {
        unknown.insert(member);
        continue;
      }
      const RecordedCall* const last = last_of(*record, key.first);
      // The rank made the call, but newer calls have overwritten it in the record.
      if (last && last->sequence > key.second) continue;
      absent.insert(member);
      details += " " + absence(*record, last);
    }
    groups.insert(key.first);
    if (absent.empty() && unknown.empty()) {
      found.push_back(unfinished(collective));
      continue;
    }
    const bool is_sure = !absent.empty();
    if (!is_sure) {
      absent = std::move(unknown);
    } else if (!unknown.empty()) {
      details += fmt::format(" {} gave no record.", ranks_text(unknown));
    }
    found.push_back(fmt::format(
        "{} {} call {} of group '{}', {}. {} waited for it since {}, for {}.{}", ranks_text(absent),
        is_sure ? "did not make" : "gave no record, and may not have made", key.second,
        collective.group->name, call_text(*collective.places.front().call), ranks_text(present),
        time_text(since), duration_text(static_cast<double>(until - since)), details));
  }
}

/// Reports the total time by which each rank delayed the others.
void find_late_ranks(const Collectives& collectives, std::vector<std::string>& found) {
  struct Lateness {
    long long calls = 0;
    double total = 0;
    std::int64_t most = 0;
    const MatchedCollective* worst = nullptr;
  };
  std::map<int, Lateness> late;
  long long compared = 0;
  for (const auto& [key, collective] : collectives) {
    std::vector<std::pair<std::int64_t, int>> arrivals;
    for (const Place& place : collective.places) {
      if (place.call->arrived() != 0 && synchronises(*place.call))
        arrivals.emplace_back(place.call->arrived(), place.record->rank);
    }
    if (arrivals.size() < collective.group->members.size() || arrivals.size() < 2) continue;
    ++compared;
    std::ranges::sort(arrivals);
    const std::int64_t delay = arrivals.back().first - arrivals[arrivals.size() - 2].first;
    Lateness& rank = late[arrivals.back().second];
    ++rank.calls;
    rank.total += static_cast<double>(delay);
    if (delay >= rank.most) {
      rank.most = delay;
      rank.worst = &collective;
    }
  }
  std::vector<std::pair<int, Lateness>> order(late.begin(), late.end());
  std::ranges::sort(order,
                    [](const auto& a, const auto& b) { return a.second.total > b.second.total; });
  for (const auto& [rank, lateness] : order) {
    if (lateness.total < kLeastDelay) break;
    const Place& place = lateness.worst->places.front();
    found.push_back(fmt::format(
        "Rank {} came last to {} of {} collectives and delayed the other ranks by {} in all; the "
        "longest delay was {} in call {} of group '{}', {}, at {}.",
        rank, lateness.calls, compared, duration_text(lateness.total),
        duration_text(static_cast<double>(lateness.most)), place.call->sequence,
        lateness.worst->group->name, call_text(*place.call), time_text(place.call->arrived())));
  }
}

/// Bounds of the difference between the clocks of two hosts, in nanoseconds.
struct ClockBounds {
  std::int64_t least = INT64_MIN;
  std::int64_t most = INT64_MAX;
};

/// Bounds of the time that must be added to times of `host` to compare them with `reference`.
ClockBounds bounds_of(const Collectives& collectives, const std::string& reference,
                      const std::string& host) {
  ClockBounds bounds;
  for (const auto& [key, collective] : collectives) {
    for (const Place& a : collective.places) {
      if (a.record->host != reference || a.call->state != "done" || !synchronises(*a.call))
        continue;
      for (const Place& b : collective.places) {
        if (b.record->host != host || b.call->state != "done") continue;
        if (a.call->arrived() == 0 || b.call->arrived() == 0) continue;
        // If a small call did not wait, its `ended` is the time at which it started.
        bounds.least = std::max(bounds.least, a.call->arrived() - b.call->ended);
        bounds.most = std::min(bounds.most, a.call->ended - b.call->arrived());
      }
    }
  }
  return bounds;
}

}  // namespace

std::vector<std::string> align(std::vector<FlightRecord>& records) {
  std::vector<std::string> shifted;
  std::map<std::string, std::int64_t> shifts;
  const Collectives collectives = match(records);
  const std::string reference = records.front().host;
  for (const FlightRecord& record : records) {
    if (record.host == reference || shifts.contains(record.host)) continue;
    const ClockBounds bounds = bounds_of(collectives, reference, record.host);
    std::int64_t& shift = shifts[record.host];
    if (bounds.least > bounds.most) {
      shift = bounds.least / 2 + bounds.most / 2;
    } else {
      shift = std::clamp<std::int64_t>(0, bounds.least, bounds.most);
    }
    if (shift == 0) continue;
    shifted.push_back(fmt::format(
        "The clock of {} is {} {} that of {}; the times in the records of {} are corrected.",
        record.host, duration_text(std::abs(static_cast<double>(shift))),
        shift > 0 ? "behind" : "ahead of", reference, record.host));
  }
  for (FlightRecord& record : records) {
    const auto shift = shifts.find(record.host);
    if (shift == shifts.end()) continue;
    record.written += shift->second;
    for (RecordedCall& call : record.calls) {
      for (std::int64_t* const time : {&call.submitted, &call.started, &call.ended})
        if (*time != 0) *time += shift->second;
    }
  }
  return shifted;
}

std::vector<std::string> findings(const std::vector<FlightRecord>& records) {
  const Collectives collectives = match(records);
  std::vector<std::string> found;
  if (records.size() > 1 && std::ranges::none_of(collectives, [](const auto& each) {
        return each.second.places.size() > 1;
      })) {
    found.emplace_back(
        "The records have no collective in common, because they were written at different times.");
  }
  find_differences(collectives, found);
  find_absences(collectives, records, found);
  find_late_ranks(collectives, found);
  return found;
}

}  // namespace mccl::cli::sight
