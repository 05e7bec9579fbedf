// The part of Discovery that detects dead neighbours and cut cables.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rendezvous/cabling/discovery.h"

namespace mccl::rendezvous {
namespace {

/// Time limit for the answer to a probe. Long enough for a live process that waits for a CPU core.
constexpr Clock::duration kToAnswerProbe = 3s;

/// A new trunk is made once a trunk has been silent for this share of the silence after which its
/// cable counts as cut.
constexpr int kSuspectedAfter = 5;
/// Time limit of the handshake, and pause after it, in attempts.
constexpr int kTalk = 4;
/// Maximum number of trunks of a cable. Each end may make one at a time.
constexpr std::ptrdiff_t kMostTrunks = 4;

}  // namespace

/// Before all ranks have reported, a rank that ends may be restarted, so it does not count as dead.
/// After that, and until the ranks agree, a rank without a trunk for kGoneForGood counts as dead.
/// After the agreement, an ended trunk is not dialed again. A neighbour whose last trunk has ended
/// may then be alive, with only the cable cut, so it is probed.
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
    request.candidates.push_back({end.there.with_port(link_state_.port_of(peer)), end.here, {}});
  // If all trunks to the peer ended before the ranks agreed, known_ has no cable to the peer, so
  // the probe tries the peer's addresses in the hostfile.
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
  return fmt::format(
      "rank {} died while the ranks connected (its connection to rank {} ended); see its last "
      "output",
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
    for (const Trunk& trunk : trunks_) {
      if (trunk.cable() == known.cable) known.heard_at = std::max(known.heard_at, trunk.heard_at());
    }
  }
  for (Known& known : known_) {
    known.is_lost |= link_state_.is_cut(known.cable);
    if (known.is_lost || known.has_left) {
      known.dial.reset();
      continue;
    }
    // While the ranks connect, an ended trunk may mean that the peer's process has ended.
    // advance_probes() then finds out whether it has.
    if (are_meeting_ && !has_trunk(known)) {
      known.heard_at = now;
      continue;
    }
    if (has_trunk(known) && now - known.heard_at < silence / kSuspectedAfter) {
      known.dial.reset();
      continue;
    }
    if (!are_meeting_) connect_again(known, attempt_limit_within(silence), now);
    const bool is_silent = now - known.heard_at >= silence && !known.has_left;
    if (!is_silent || has_parallel_cable(known, now - silence)) {
      if (is_silent && !known.is_interrupted) interrupt(known, silence);
      known.is_interrupted = is_silent;
      continue;
    }
    known.is_lost = true;
    give_up(
        known.cable,
        fmt::format("nothing has arrived over it for {:.3g} s; it is cut, or rank {} is stopped",
                    std::chrono::duration<double>(silence).count(), other_end_of(known.cable)));
  }
  return link_state_.take_cut();
}

bool Discovery::has_trunk(const Known& known) const {
  return std::ranges::find(trunks_, known.cable, &Trunk::cable) != trunks_.end();
}

/// True if another cable joins the same two ranks, over which messages have arrived since then.
bool Discovery::has_parallel_cable(const Known& known, Clock::time_point heard_since) const {
  return std::ranges::any_of(known_, [&](const Known& other) {
    return &other != &known && other_end_of(other.cable) == other_end_of(known.cable) &&
           !other.is_lost && other.heard_at > heard_since;
  });
}

void Discovery::interrupt(const Known& known, Clock::duration silence) {
  interrupted_.push_back(known.cable);
  log_.warn(
      "{} is interrupted: nothing has arrived over it for {:.3g} s. Other cables between these "
      "ranks carry its data until it works again; check the cable and its interfaces",
      text_of(known.cable), std::chrono::duration<double>(silence).count());
}

/// Dials for a new trunk of the cable. `limit` is the time limit of one attempt. Both ends may dial
/// at once; each keeps both trunks. If the other end refuses the connection and has no other trunk
/// to this rank, its process has ended.
void Discovery::connect_again(Known& known, Clock::duration limit, Clock::time_point now) {
  const int peer = other_end_of(known.cable);
  if (!known.dial) {
    if (now < known.next_dial) return;
    known.dial.emplace(
        DialRequest{.self = self_,
                    .peer = peer,
                    .key = {known.numbers.front(), Purpose::repair, 0},
                    .deadline = kNever,
                    .candidates = {{known.ends.there.with_port(link_state_.port_of(peer)),
                                    known.ends.here,
                                    {}}},
                    .attempt_limit = limit,
                    .longest_back_off = limit,
                    .handshake_limit = kTalk * limit,
                    .refused_for = kRefusedFor});
  }
  if (!known.dial->advance(now)) return;
  Socket socket = known.dial->take_socket();
  const bool is_refused = !socket && known.dial->last_error() == ECONNREFUSED;
  known.next_dial = now + kTalk * limit;  // The other end may close the connection at once.
  if (socket) {
    log_.info("{} has a new connection, because nothing arrived over the last one for {:.3g} s",
              text_of(known.cable), seconds_between(known.heard_at, now));
    trunks_.remove_if([&](const Trunk& trunk) {
      return trunk.cable() == known.cable && now - trunk.heard_at() >= limit;
    });
    // The cable counts as heard once a message has arrived over the new trunk.
    connected(peer, std::move(socket), known.dial->link_number(), known.heard_at);
  }
  known.dial.reset();
  const bool hears_peer = std::ranges::any_of(trunks_, [&](const Trunk& trunk) {
    return trunk.peer() == peer && now - trunk.heard_at() < kTalk * limit;
  });
  if (!is_refused || hears_peer) return;
  known.has_left = true;
  CableNews news{CableNews::Kind::ended, {}};
  news.sighting.rank = peer;
  if (link_state_.hear(news)) send_to_neighbours(news, nullptr);
}

void Discovery::connected_again(int peer, Socket socket, std::uint64_t number,
                                Clock::time_point now) {
  for (Known& known : known_) {
    if (other_end_of(known.cable) != peer || known.is_lost) continue;
    if (std::ranges::find(known.numbers, number) == known.numbers.end()) continue;
    known.has_left = false;
    if (std::ranges::count(trunks_, known.cable, &Trunk::cable) >= kMostTrunks)
      trunks_.erase(std::ranges::find(trunks_, known.cable, &Trunk::cable));
    connected(peer, std::move(socket), number, now);
    return trunks_.back().send({CableNews::Kind::alive, {}});
  }
}

void Discovery::give_up(const Cable& cable, std::string why) {
  CableNews news{CableNews::Kind::cut, {}, std::move(why)};
  news.sighting.cables = {cable};
  if (link_state_.hear(news)) send_to_neighbours(news, nullptr);
}

}  // namespace mccl::rendezvous
