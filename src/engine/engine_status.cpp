// The part of Engine that describes this rank to `mccl status`.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/version.h"
#include "engine/engine.h"

namespace mccl::engine {
namespace {

using Json = nlohmann::ordered_json;

/// Time within which the driving thread must release the progress lock. After that, the status
/// contains `"answers": false` and no groups or peers.
constexpr std::chrono::milliseconds kForTheDriver{500};

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

/// Called on the status server's thread.
std::string Engine::status_json() {
  const FlightOrigin& origin = recorder_->origin();
  const MetricsSummary counted = options_.metrics->summary();
  Json status = {{"format", "mccl status"},    {"version", 1},
                 {"mccl", version()},          {"job", origin.job},
                 {"rank", origin.rank},        {"size", origin.size},
                 {"host", origin.host},        {"pid", ::getpid()},
                 {"calls", counted.total_ops}, {"errors", counted.total_errors}};
  const bool answers = driver_.try_make_way(Clock::now() + kForTheDriver);
  status["answers"] = answers;
  status["groups"] = Json::array();
  status["peers"] = Json::array();
  if (answers) {
    const Clock::time_point now = Clock::now();
    groups_.for_each([&](const GroupState& group) {
      Json shown = json_of(group.membership());
      shown.update(json_of(group.status(now, heart_)));
      status["groups"].push_back(std::move(shown));
    });
    for (WorldRank peer(0); peer.number() < size(); ++peer) {
      if (peer.number() == rank()) continue;
      const bool silent = peers_.connected(peer) && heart_.has_fallen_silent(peer);
      status["peers"].push_back({{"rank", peer.number()},
                                 {"transport", links_.transport_to(peer)},
                                 {"state", peers_.has_left(peer)     ? "left"
                                           : !peers_.connected(peer) ? "lost"
                                           : silent                  ? "silent"
                                                                     : "connected"},
                                 {"reason", peers_.lost(peer)}});
    }
    driver_.go_on();
  }
  return status.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace mccl::engine
