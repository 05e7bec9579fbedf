// The part of Engine that describes this rank to `mccl status`.
#include <unistd.h>

#include <future>
#include <nlohmann/json.hpp>

#include "base/version.h"
#include "engine/engine.h"

namespace mccl::engine {
namespace {

using Json = nlohmann::ordered_json;

/// Time within which the other ranks must answer. The client waits for two seconds in all.
constexpr std::chrono::milliseconds kForTheOthers{800};

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
                     {"why", each.why}});
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
  const bool answers = driver_.try_make_way(Clock::now() + kForTheDriver);
  const Json shown = answers ? status() : identity();
  if (answers) driver_.go_on();
  return text_of(shown);
}

/// Returns this rank's report for other ranks. If the text would be too long, omits the peers and,
/// if necessary, the groups.
std::string Engine::report() {
  Json shown = status();
  std::string text = text_of(shown);
  for (const char* part : {"peers", "groups"}) {
    if (text.size() < Reports::kMostBytes) break;
    shown[part] = Json::array();
    text = text_of(shown);
  }
  return text;
}

std::string Engine::status_of_others_json() {
  const Clock::time_point deadline = Clock::now() + kForTheDriver;
  Json ranks = Json::array();
  if (driver_.try_make_way(deadline)) {
    const std::future<void> complete = reports_.request();
    driver_.go_on();
    complete.wait_for(kForTheOthers);
  }
  if (driver_.try_make_way(deadline + kForTheOthers)) {
    for (auto& [peer, text] : reports_.take())
      ranks.push_back({{"rank", peer.number()}, {"report", std::move(text)}});
    driver_.go_on();
  }
  return text_of({{"format", "mccl others"}, {"version", 1}, {"ranks", std::move(ranks)}});
}

}  // namespace mccl::engine
