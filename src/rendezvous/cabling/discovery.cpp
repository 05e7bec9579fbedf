#include "rendezvous/cabling/discovery.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>

#include "mccl/error.h"

namespace mccl::rendezvous {
namespace {

/// Time after which a rank that is known to run has its addresses without a connection ruled out.
/// Also the longest time that rank 0 waits until both ends of a cable have reported the cable.
constexpr Clock::duration kPatience = 1s;
/// Minimum interval between reports to the neighbours about cables. Changes in this interval are
/// reported together, because many cables are found at the same time.
constexpr Clock::duration kBetweenLooks = 10ms;
/// Pause between the end of a trunk and the next dial of its address. Without it, a restarted rank
/// would dial continuously, because ranks that have already agreed close its connections at once.
/// Shorter than kPatience, so that an address is tried again before it is ruled out.
constexpr Clock::duration kBetweenTrunks = 500ms;
/// Maximum time to wait until all neighbours confirm that they know of a fault.
constexpr Clock::duration kToSpreadFault = 1s;

/// True for connection errors which show that no cable leads to the address. A rank listens at all
/// addresses that the hostfile lists for it, so an address that refuses connections belongs to
/// another machine.
bool leads_nowhere(int error) {
  return error == ENETUNREACH || error == EHOSTUNREACH || error == ECONNREFUSED ||
         error == EADDRNOTAVAIL || error == EACCES || error == EPERM;
}

/// Returns the addresses of a host; none if its name cannot be resolved here. This is no error,
/// because the ranks that have a cable to the host may be able to resolve the name.
std::vector<Address> resolved(const std::string& host, std::uint16_t port, const Log& log) {
  try {
    return resolve(host, port);
  } catch (const Error& error) {
    log.info("hostfile: {}", error.what());
    return {};
  }
}

}  // namespace

/// Returns a request to dial `to`. It needs no deadline, because the dials of the search are
/// dropped when the ranks have agreed, or by close().
DialRequest Discovery::request_for(int peer, std::size_t index, const Address& to,
                                   Clock::time_point not_before) const {
  return {.self = self_,
          .peer = peer,
          .key = {0, Purpose::cable, static_cast<std::uint8_t>(index)},
          .deadline = kNever,
          .candidates = {{to, {}, {}}},
          .not_before = not_before};
}

Discovery::Discovery(Party self, const AddressTable& table, std::uint16_t port, Log log)
    : self_(std::move(self)),
      log_(std::move(log)),
      link_state_(self_.rank, self_.size, port),
      peers_(table.size()) {
  for (std::size_t peer = 0; peer < table.size(); ++peer) {
    if (static_cast<int>(peer) == self_.rank) continue;
    std::size_t index = 0;
    for (const auto& [host, at] : table[peer]) {
      for (const Address& address : resolved(host, at, log_)) {
        tried_.emplace_back(static_cast<int>(peer), address);
        dials_.emplace_back(request_for(static_cast<int>(peer), index++, address));
      }
    }
  }
}

void Discovery::connected(int peer, Socket socket, std::uint64_t number, Clock::time_point now) {
  Trunk& trunk = trunks_.emplace_back(std::move(socket), number, self_.rank, peer, self_.size, now);
  state_of(peer).gone_since = kNever;
  log_.debug("{} is connected", text_of(trunk.cable()));
  if (has_failed()) trunk.send(link_state_.fault_news());
}

void Discovery::advance(Clock::time_point now) {
  advance_dials(now);
  advance_trunks(now);
  look_for_deaths(now);
  advance_probes(now);
  if (cabling() || has_failed() || now < next_look_) return;
  next_look_ = now + kBetweenLooks;
  look_around(now);
  if (!cabling()) spread_sightings();
}

void Discovery::advance_dials(Clock::time_point now) {
  dials_.remove_if([&](Dial& dial) {
    if (!dial.advance(now)) return false;
    Socket socket = dial.take_socket();
    if (!socket && !dial.reason().empty()) log_.debug("{}", dial.reason());
    if (socket) connected(dial.peer(), std::move(socket), dial.link_number(), now);
    return true;
  });
}

void Discovery::advance_trunks(Clock::time_point now) {
  for (auto trunk = trunks_.begin(); trunk != trunks_.end();) {
    std::vector<CableNews> news;
    bool open = true;
    try {
      open = trunk->advance(now, news);
      for (const CableNews& each : news) take(each, *trunk, now);
    } catch (const Error& error) {
      // Keep the trunk until the next call of this function, because misbehaves() may queue a
      // report of the fault for the trunk's peer.
      open = !trunk->given_up;
      misbehaves(*trunk, error.what(), now);
      trunk->given_up = true;
    }
    if (open) {
      ++trunk;
      continue;
    }
    const Trunk ended = std::move(*trunk);
    trunk = trunks_.erase(trunk);
    if (!is_joined_to(ended.peer()) && !ended.given_up) state_of(ended.peer()).gone_since = now;
    if (!cabling() && !has_failed()) lost(ended, now);
  }
}

void Discovery::misbehaves(Trunk& trunk, const std::string& how, Clock::time_point now) {
  if (cabling())
    return give_up(trunk.cable(),
                   fmt::format("rank {} violates the protocol: {}", trunk.peer(), how));
  const std::string why = fmt::format(
      "rank {} at {} violates the protocol, as seen by rank {}: {}; do all ranks run the same "
      "build of MCCL?",
      trunk.peer(), trunk.there().text(), self_.rank, how);
  fail({CableNews::Kind::fault, {}, why}, now);
}

/// Sends the fault to all neighbours; connected() sends it to those that connect later. The
/// neighbour that reported the fault also gets it, as an acknowledgement.
void Discovery::fail(const CableNews& fault, Clock::time_point now) {
  if (!link_state_.hear(fault)) return;
  fault_spread_at_ = now + kToSpreadFault;
  for (Trunk& trunk : trunks_) trunk.send(fault);
}

std::string Discovery::fault(Clock::time_point now) const {
  const bool all_know =
      link_state_.unheard().empty() &&
      std::ranges::all_of(trunks_, [](const Trunk& trunk) { return trunk.given_up; });
  return now >= fault_spread_at_ || all_know ? link_state_.fault() : "";
}

/// Called when a trunk ends before the ranks agree. Dials its address again, because the rank there
/// may be restarted, or the cable plugged in again. If the trunk was the last one to that rank, the
/// rank no longer counts as known to run.
void Discovery::lost(const Trunk& trunk, Clock::time_point now) {
  if (!is_joined_to(trunk.peer())) state_of(trunk.peer()).known_since = kNever;
  for (const auto& [peer, address] : tried_) {
    if (peer == trunk.peer() && address == trunk.there())
      dials_.emplace_back(request_for(peer, 0, address, now + kBetweenTrunks));
  }
}

bool Discovery::is_joined_to(int peer) const {
  return std::ranges::find(trunks_, peer, &Trunk::peer) != trunks_.end();
}

void Discovery::take(const CableNews& news, Trunk& from, Clock::time_point now) {
  if (news.kind == CableNews::Kind::fault) {
    from.given_up = true;
    // After the agreement, a fault arrives only from a neighbour that learned of it before the
    // decision of rank 0. That neighbour's process fails, so the cable to it is given up.
    return cabling() ? give_up(from.cable(), news.why) : fail(news, now);
  }
  if (has_failed()) return;
  const int rank = news.sighting.rank;
  const bool is_sighting = news.kind == CableNews::Kind::sighting;
  if (!link_state_.hear(news)) {
    // If the known sighting has a higher version, an earlier process with the sender's rank made
    // it. Sending it back lets the new process choose a higher version.
    const Sighting* const known =
        is_sighting && rank == from.peer() ? link_state_.sighting_of(rank) : nullptr;
    if (known && known->version > news.sighting.version)
      from.send({CableNews::Kind::sighting, *known});
    return;
  }
  if (is_sighting) {
    if (rank == self_.rank) return;
    auto& since = state_of(rank).known_since;
    since = std::min(since, now);
    return;
  }
  send_to_neighbours(news, &from);
  if (news.kind == CableNews::Kind::death) death_spread_at_ = now + kToSpreadDeath;
  if (news.kind == CableNews::Kind::decision) {
    dials_.clear();
    look_around(now);
  }
}

bool Discovery::is_first(const Trunk& trunk) const {
  return &*std::ranges::find(trunks_, trunk.peer(), &Trunk::peer) == &trunk;
}

/// Neighbours of rank 0 receive the decision on the cabling from rank 0 itself, so other ranks do
/// not forward it to them.
void Discovery::send_to_neighbours(const CableNews& news, const Trunk* but) {
  for (Trunk& trunk : trunks_) {
    const bool knows = news.kind == CableNews::Kind::decision && self_.rank != 0 &&
                       cabling()->joins(0, trunk.peer());
    const bool is_used = is_first(trunk) || (cabling() && news.kind != CableNews::Kind::decision);
    if (!knows && (!but || trunk.peer() != but->peer()) && is_used) trunk.send(news);
  }
}

/// Sends each neighbour the sightings of this rank and of all ranks without a cable to that
/// neighbour. Ranks with such a cable send their sightings themselves.
void Discovery::spread_sightings() {
  for (Trunk& trunk : trunks_) {
    if (!is_first(trunk)) continue;
    for (int rank = 0; rank < self_.size; ++rank) {
      const Sighting* const sighting = link_state_.sighting_of(rank);
      const bool sends_its_own = rank != self_.rank && link_state_.joins(rank, trunk.peer());
      if (sighting && rank != trunk.peer() && !sends_its_own) trunk.send_once(*sighting);
    }
  }
}

/// Updates the cables that this rank sees; on rank 0, also calls decide(). Once the cabling is
/// decided, records this rank's agreed cables in known_.
void Discovery::look_around(Clock::time_point now) {
  if (!cabling()) {
    const bool settled =
        std::ranges::all_of(dials_, [&](const Dial& dial) { return is_ruled_out(dial, now); });
    link_state_.see(cables(), settled);
    if (self_.rank != 0 || !decide(now)) return;
    send_to_neighbours(link_state_.decision(), nullptr);
    dials_.clear();
  }
  for (const Cable& cable : cabling()->cables()) {
    if (cable.a != self_.rank && cable.b != self_.rank) continue;
    const auto trunk = std::ranges::find(trunks_, cable, &Trunk::cable);
    if (trunk == trunks_.end()) {
      // If the last trunk to the rank at the other end has ended, the cable is not given up here:
      // look_for_deaths() first checks whether that rank is alive.
      const bool is_asked = are_meeting_ && state_of(other_end_of(cable)).gone_since != kNever;
      if (!is_asked) give_up(cable, kGoneTooSoon);
    } else {
      Known& known = known_.emplace_back(
          Known{cable, {trunk->here().with_port(0), trunk->there().with_port(0)}, now});
      for (const Trunk& each : trunks_) {
        if (each.cable() == cable) known.numbers.push_back(each.number());
      }
    }
  }
}

/// Decides on the cabling once all ranks have finished their search; returns true if there is a
/// decision. Waits up to kPatience for cables that only one end has reported, because the other end
/// may have finished its search before it saw them.
bool Discovery::decide(Clock::time_point now) {
  settled_since_ = link_state_.all_settled() ? std::min(settled_since_, now) : kNever;
  if (settled_since_ == kNever) return false;
  if (!link_state_.both_ends_see_all() && now - settled_since_ < kPatience) return false;
  return link_state_.decide();
}

bool Discovery::is_ruled_out(const Dial& dial, Clock::time_point now) const {
  const Clock::time_point since = state_of(dial.peer()).known_since;
  if (since == kNever) return false;
  if (now - since >= kPatience) return true;
  return leads_nowhere(dial.last_error()) && dial.last_tried() > since;
}

std::vector<Cable> Discovery::cables() const {
  std::vector<Cable> found;
  for (const Trunk& trunk : trunks_) {
    if (std::ranges::find(found, trunk.cable()) == found.end()) found.push_back(trunk.cable());
  }
  return found;
}

std::vector<CableEnds> Discovery::ends(int peer) const {
  std::vector<CableEnds> found;
  for (const Known& known : known_) {
    if (known.cable.a == peer || known.cable.b == peer) found.push_back(known.ends);
  }
  return found;
}

std::vector<Address> Discovery::own_ends() const {
  std::vector<Address> found;
  for (const Trunk& trunk : trunks_) found.push_back(trunk.here());
  return found;
}

std::string Discovery::trouble() const {
  std::vector<int> here;
  std::vector<int> gone = link_state_.unheard();
  for (int rank = 0; rank < self_.size; ++rank) {
    if (std::ranges::find(gone, rank) == gone.end()) here.push_back(rank);
  }
  if (gone.empty()) {
    return fmt::format("all ranks are connected, but ranks {} are still searching for cables",
                       fmt::join(link_state_.unsettled(), ", "));
  }
  std::string tried;
  for (const Dial& dial : dials_) {
    if (std::ranges::find(gone, dial.peer()) == gone.end()) continue;
    const Candidate& to = dial.first_choice();
    tried += fmt::format("{}rank {} at {}: {}", tried.empty() ? "" : "; ", dial.peer(),
                         to.to.text(), to.outcome.empty() ? "not tried" : to.outcome);
  }
  const std::string_view plural = gone.size() == 1 ? "" : "s";
  const std::string part =
      here.size() == 1
          ? fmt::format("no cable leads from rank {} to rank{} {}", self_.rank, plural,
                        fmt::join(gone, ", "))
          : fmt::format("ranks {} are connected, but no cable leads from them to rank{} {}",
                        fmt::join(here, ", "), plural, fmt::join(gone, ", "));
  return fmt::format("{}; tried from rank {}: {}", part, self_.rank,
                     tried.empty() ? "nothing" : tried);
}

void Discovery::close() noexcept {
  dials_.clear();
  probes_.clear();
  known_.clear();
  trunks_.clear();
}

void Discovery::watch(std::vector<pollfd>& descriptors) const {
  for (const std::list<Dial>* dials : {&dials_, &probes_})
    for (const Dial& dial : *dials) dial.watch(descriptors);
  for (const Known& known : known_) {
    if (known.dial) known.dial->watch(descriptors);
  }
  for (const Trunk& trunk : trunks_) descriptors.push_back(trunk.watched());
}

Clock::time_point Discovery::next_deadline() const {
  // Until the ranks have agreed, look_around() must run at next_look_.
  Clock::time_point next = cabling() ? kNever : next_look_;
  if (has_failed()) next = fault_spread_at_;
  if (!cabling()) next = std::min(next, death_spread_at_);
  for (const Peer& peer : peers_) {
    const Clock::time_point since = peer.gone_since;
    if (!cabling() && since != kNever && since + kGoneForGood > Clock::now())
      next = std::min(next, since + kGoneForGood);
  }
  for (const Dial& probe : probes_) next = std::min(next, probe.next_deadline());
  for (const Known& known : known_) {
    if (known.dial) next = std::min(next, known.dial->next_deadline());
  }
  for (const Dial& dial : dials_) {
    next = std::min(next, dial.next_deadline());
    const Clock::time_point since = state_of(dial.peer()).known_since;
    if (since != kNever && since + kPatience > Clock::now())
      next = std::min(next, since + kPatience);
  }
  return next;
}

}  // namespace mccl::rendezvous
