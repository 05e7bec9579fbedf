// The part of Engine that describes this rank to `mccl status`.
#include <unistd.h>

#include <future>
#include <nlohmann/json.hpp>

#include "base/call_sites.h"
#include "base/version.h"
#include "engine/engine.h"

namespace mccl::engine {
namespace {

using Json = nlohmann::ordered_json;

/// Time within which the other ranks must answer. The sum of this time and kForTheDriver must be
/// below the two seconds for which the program `mccl` waits for the answer.
constexpr std::chrono::milliseconds kForTheOthers{800};
constexpr std::chrono::milliseconds kBetweenLooksForReports{20};

/// Returns the JSON as text. Replaces invalid UTF-8, which texts of the operating system and of
/// other ranks may contain.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json json_of(const GroupState::Status& status) {
  Json calls = Json::array();
  for (const GroupState::Status::Pending& each : status.pending) {
    Json waits_for = Json::array();
    for (const GroupRank member : each.waits_for) waits_for.push_back(member.number());
    calls.push_back({{"call", describe(each.call)},
                     {"sequence", each.call.sequence},
                     {"state", each.has_started ? "running" : "queued"},
                     {"waited_s", each.waited_s},
                     {"waits_for", std::move(waits_for)},
                     {"why", each.why},
                     {"site", text_of_call_site(each.call.site)}});
  }
  return {{"pending", std::move(calls)},
          {"more_pending", status.more_pending},
          {"last", status.last.sequence == 0 ? "" : describe(status.last)},
          {"failure", status.failure}};
}

Json json_of(const Membership& membership) {
  Json members = Json::array();
  for (const WorldRank member : membership.members) members.push_back(member.number());
  return {{"name", membership.name},
          {"id", fmt::format("{:016x}", membership.id)},
          {"rank", membership.rank.number()},
          {"members", std::move(members)}};
}

}  // namespace

/// Returns the part of the status that needs no lock.
Json Engine::identity() const {
  const FlightOrigin& origin = recorder_->origin();
  const MetricsSummary counted = options_.metrics->summary();
  return {{"format", "mccl status"},
          {"version", 1},
          {"mccl", version()},
          {"job", origin.job},
          {"rank", origin.rank},
          {"size", origin.size},
          {"host", origin.host},
          {"pid", ::getpid()},
          {"calls", counted.total_ops},
          {"errors", counted.total_errors},
          {"bytes_sent", counted.total_bytes_sent},
          {"bytes_received", counted.total_bytes_recv},
          {"answers", false},
          {"groups", Json::array()},
          {"peers", Json::array()}};
}

Json Engine::status() {
  Json status = identity();
  status["answers"] = true;
  const Clock::time_point now = Clock::now();
  ByRank<WorldRank, LinkBytes> bytes(static_cast<std::size_t>(size()));
  groups_.for_each([&](const GroupState& group) {
    Json shown = json_of(group.membership());
    shown.update(json_of(group.status(now, heart_)));
    status["groups"].push_back(std::move(shown));
  });
  for (const auto& [link, each] : links_.bytes()) {
    bytes[link.peer].sent += each.sent;
    bytes[link.peer].received += each.received;
  }
  for (WorldRank peer(0); peer.number() < size(); ++peer) {
    if (peer.number() == rank()) continue;
    status["peers"].push_back({{"rank", peer.number()},
                               {"transport", links_.transport_to(peer)},
                               {"state", state_of(peer)},
                               {"reason", peers_.lost(peer)},
                               {"bytes_sent", bytes[peer].sent},
                               {"bytes_received", bytes[peer].received}});
  }
  return status;
}

std::string Engine::status_json() {
  const WayGuard way(driver_, Clock::now() + kForTheDriver);
  return text_of(way ? status() : identity());
}

/// Returns this rank's report for other ranks. If the text would be too long, omits the idle groups
/// that have not failed, then the peers, and finally all groups.
std::string Engine::report() {
  Json shown = status();
  std::string text = text_of(shown);
  if (text.size() < Reports::kMostBytes) return text;
  shown["truncated"] = true;
  Json& groups = shown["groups"];
  for (std::size_t i = groups.size(); i-- > 0;)
    if (groups[i]["pending"].empty() && groups[i]["failure"].get<std::string>().empty())
      groups.erase(i);
  for (const char* part : {"peers", "groups"}) {
    text = text_of(shown);
    if (text.size() < Reports::kMostBytes) break;
    shown[part] = Json::array();
  }
  return text_of(shown);
}

/// Handles control messages while it waits for the reports, because a callback of the program may
/// block the thread that usually handles them.
std::string Engine::status_of_others_json() {
  const Clock::time_point deadline = Clock::now() + kForTheDriver + kForTheOthers;
  Json answer = {{"format", "mccl others"}, {"version", 1}, {"ranks", Json::array()}};
  std::future<void> complete;
  if (const WayGuard way(driver_, Clock::now() + kForTheDriver); way) complete = reports_.request();
  while (complete.valid() &&
         complete.wait_for(kBetweenLooksForReports) != std::future_status::ready &&
         Clock::now() < deadline) {
    if (const WayGuard way(driver_, Clock::now() + kBetweenLooksForReports); way)
      look_beside_safely(Clock::now());
  }
  const WayGuard way(driver_, deadline + kBetweenLooksForReports);
  if (!complete.valid() || !way) {
    answer["trouble"] = "its own calls kept it busy for too long; run the command again";
    return text_of(answer);
  }
  for (auto& [peer, text] : reports_.take())
    answer["ranks"].push_back({{"rank", peer.number()}, {"report", std::move(text)}});
  return text_of(answer);
}

}  // namespace mccl::engine
