// The part of Wiring that handles authenticated connections to this rank.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rendezvous/cabling/wiring.h"
#include "rendezvous/connections/dialing.h"

namespace mccl::rendezvous {
namespace {

using namespace std::chrono_literals;

/// Time limits for connecting to the next rank on a path, and of one attempt.
constexpr Clock::duration kOnwardsLimit = 20s;
constexpr Clock::duration kOnwardsAttempt = 500ms;

}  // namespace

void Wiring::take(Newcomer& newcomer, Clock::time_point now) {
  switch (newcomer.key.purpose) {
    case transport::Purpose::cable:
      // After the agreement, a connection for a cable is closed. It comes from a rank that probes
      // whether this rank is alive, or from a restarted process, which joins too late.
      if (has_agreed_ || (options_.may_reach && !options_.may_reach(newcomer.peer))) return;
      return discovery_.connected(newcomer.peer, std::move(newcomer.socket), newcomer.link_number,
                                  now);
    case transport::Purpose::repair:
      return discovery_.connected_again(newcomer.peer, std::move(newcomer.socket),
                                        newcomer.key.group, now);
    case transport::Purpose::relay:
      if (has_agreed_) return hand_over_or_pass_on(newcomer);
      return wait_for_agreement(newcomer);
    default:
      log_.warn(
          "rank {} connected to an address that is only for cables and relays; give every rank the "
          "same hostfile (MCCL_HOSTFILE)",
          newcomer.peer);
  }
}

void Wiring::wait_for_agreement(Newcomer& newcomer) {
  const auto is_of_peer = [&](const Newcomer& each) { return each.peer == newcomer.peer; };
  if (std::ranges::count_if(early_, is_of_peer) < static_cast<long>(kMostRelayed))
    return early_.push_back(std::move(newcomer));
  log_.warn(
      "rank {} asks for more than {} relayed connections before the ranks have agreed on the "
      "cables; the others are closed",
      newcomer.peer, kMostRelayed);
}

void Wiring::hand_over_or_pass_on(Newcomer& newcomer) {
  const std::uint64_t rank = newcomer.key.group;
  const auto destination = static_cast<Destination>(newcomer.key.rail);
  const auto inlet = inlets_.find(destination);
  if (rank >= static_cast<std::uint64_t>(self_.size) || inlet == inlets_.end()) {
    log_.warn(
        "rank {} asked this rank to relay a connection to rank {}, but the job has no such rank, "
        "or the requested service (links or store) is unknown; the connection is closed",
        newcomer.peer, rank);
    return;
  }
  const auto to = static_cast<int>(rank);
  if (to == self_.rank) return inlet->second.hand_over(std::move(newcomer.socket));
  Way way = way_to(to, destination);
  DialRequest onwards{.self = way.first.self,
                      .peer = way.first.rank,
                      .key = way.first.key,
                      .deadline = Clock::now() + kOnwardsLimit,
                      .candidates = std::move(way.candidates),
                      .attempt_limit = kOnwardsAttempt,
                      .buffer_bytes = buffer_bytes_,
                      .refused_for = kRefusedFor};
  relaying_.pass_on(newcomer.peer, to, std::move(newcomer.socket), std::move(onwards));
}

}  // namespace mccl::rendezvous
