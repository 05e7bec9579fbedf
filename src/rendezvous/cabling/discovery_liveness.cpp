// The part of Discovery that detects dead neighbours and cut cables.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rendezvous/cabling/discovery.h"

namespace mccl::rendezvous {
namespace {

using namespace std::chrono_literals;

/// Time limit for the answer to a probe of a neighbour whose trunk (connection along a cable) has
/// ended. It is long enough for a live process that must wait for a CPU core.
constexpr Clock::duration kToAnswerProbe = 3s;

}  // namespace

/// Before all ranks have reported, a rank that ends may be restarted, so it does not count as dead.
/// After that, and until the ranks agree, a rank without a trunk (connection) for kGoneForGood
/// counts as dead. Once the ranks have agreed, an ended trunk is not dialed again. A neighbour
/// whose last trunk has ended may then be alive, with only the cable cut, so it is probed.
void Discovery::look_for_deaths(Clock::time_point now) {
  if (!are_meeting_ || has_failed() || !link_state_.death().empty()) return;
  if (!cabling() && !link_state_.unheard().empty()) return;
  for (int peer = 0; peer < self_.size; ++peer) {
    auto& since = state_of(peer).gone_since;
    if (since == kNever) continue;
    if (cabling()) {
      since = kNever;
      if (cabling()->joins(self_.rank, peer)) probe(peer, now);
    } else if (now - since >= kGoneForGood) {
      return report_death(death_of(peer), now);
    }
  }
}

void Discovery::probe(int peer, Clock::time_point now) {
  DialRequest request = request_for(peer, 0, {});
  request.candidates.clear();
  for (const CableEnds& end : ends(peer))
    request.candidates.push_back({end.there.with_port(port_of(peer)), end.here, {}});
  // If all trunks (connections along cables) to the peer ended before the ranks agreed, known_ has
  // no cable to the peer, so the probe tries the peer's addresses in the hostfile.
  if (request.candidates.empty()) {
    for (const auto& [rank, address] : tried_) {
      if (rank == peer) request.candidates.push_back({address, {}, {}});
    }
  }
  request.deadline = now + kToAnswerProbe;
  request.refused_for = kRefusedFor;
  probes_.emplace_back(std::move(request));
}

/// Ends the probes that have a result. The probed rank is alive if it completes the handshake, even
/// if it then closes the connection, as it does once it knows the agreed cabling.
void Discovery::advance_probes(Clock::time_point now) {
  probes_.remove_if([&](Dial& probe) {
    if (!probe.advance(now)) return false;
    const int peer = probe.peer();
    if (probe.take_socket()) {
      log_.warn("the connection to rank {} along a cable has ended, but that rank is alive", peer);
      if (ends(peer).empty()) {
        for (const Cable& cable : cabling()->between(self_.rank, peer))
          give_up(cable, kGoneTooSoon);
      }
    } else if (probe.last_error() == ECONNREFUSED) {
      report_death(death_of(peer), now);
    } else {
      report_death(fmt::format("rank {} lost its connection to rank {} while the ranks connected, "
                               "and rank {} does not answer",
                               self_.rank, peer, peer),
                   now);
    }
    return true;
  });
}

std::string Discovery::death_of(int rank) const {
  return fmt::format("rank {} died while the ranks connected (its connection to rank {} ended)",
                     rank, self_.rank);
}

void Discovery::report_death(const std::string& why, Clock::time_point now) {
  const CableNews news{CableNews::Kind::death, {}, why};
  if (!link_state_.hear(news)) return;
  death_spread_at_ = now + kToSpreadDeath;
  send_to_neighbours(news, nullptr);
}

std::string Discovery::death(Clock::time_point now) const {
  return cabling() || now >= death_spread_at_ ? link_state_.death() : "";
}

void Discovery::beat() {
  for (Trunk& trunk : trunks_) trunk.send({CableNews::Kind::alive, {}});
}

std::vector<CutCable> Discovery::cut(Clock::time_point now, Clock::duration silence) {
  for (Known& known : known_) {
    if (known.is_lost) continue;
    // A cable whose trunk (connection) has ended does not count as cut here, because the peer's
    // process may have ended. advance_probes() finds out whether the process has ended.
    std::optional<Clock::time_point> heard_at;
    for (const Trunk& trunk : trunks_) {
      if (trunk.cable() == known.cable) heard_at = std::max(heard_at, {trunk.heard_at()});
    }
    if (!heard_at || now - *heard_at < silence) continue;
    known.is_lost = true;
    give_up(
        known.cable,
        fmt::format("nothing has arrived over it for {:.3g} s; it is cut, or rank {} is stopped",
                    std::chrono::duration<double>(silence).count(), other_end_of(known.cable)));
  }
  return link_state_.take_cut();
}

void Discovery::give_up(const Cable& cable, std::string why) {
  CableNews news{CableNews::Kind::cut, {}, std::move(why)};
  news.sighting.cables = {cable};
  if (link_state_.hear(news)) send_to_neighbours(news, nullptr);
}

}  // namespace mccl::rendezvous
