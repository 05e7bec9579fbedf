#include "rendezvous/meeting/repairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <iterator>
#include <new>
#include <utility>

#include "mccl/error.h"

namespace mccl::rendezvous {
namespace {

using transport::tcp::TcpLink;
using State = RepairExchange::State;

/// Delay before the lower rank of a pair dials, so that the two ranks seldom dial at the same time.
constexpr Clock::duration kLowerRankWaits = 50ms;
/// Longest pause between attempts to connect, and the pause after an exchange that failed.
constexpr Clock::duration kPause = 100ms;
/// Maximum factor by which the lower rank of a pair lengthens the pause after each failure, so that
/// the two ranks do not keep dialling at the same time.
constexpr int kLongestFactor = 16;
/// Time limit of a handshake or an exchange: MCCL_LINK_RETRY / kTalks, but at least kShortestTalk.
constexpr int kTalks = 4;
constexpr Clock::duration kShortestTalk = 500ms;
constexpr Clock::duration kUnknownLimit = 5s;
constexpr std::size_t kMostUnknown = 64;
/// The pause before a return is doubled if the link used its own path for a shorter time than this.
constexpr Clock::duration kStable = 30s;
constexpr Clock::duration kLongestBetweenReturns = 60s;
/// Number of bytes received over a relayed link after which a receipt is due.
constexpr transport::tcp::StreamOffset kReceiptBytes = 64 << 10;

}  // namespace

void Repairs::stop() noexcept {
  is_running_ = false;
  for (auto& [link, entry] : links_) close(entry);
  unknown_.clear();
}

void Repairs::add(TcpLink& link, RepairedLink about) {
  links_.emplace(&link, Entry{link, about});
  if (about.relay >= 0) ++relayed_;
}

void Repairs::forget(const TcpLink& link) noexcept {
  const auto found = links_.find(&link);
  if (found == links_.end()) return;
  close(found->second);
  const RepairedLink& about = found->second.about;
  if (about.relay >= 0) {
    --relayed_;
    try {
      last_receipts_.push_back({WorldRank(about.peer), about.key, link.received()});
    } catch (const std::bad_alloc&) {
      // The peer waits until this rank closes the connection.
    }
  }
  links_.erase(found);
}

/// Begins a repair unless one is in progress. Returns false if the link cannot be repaired.
bool Repairs::open(const TcpLink& link, const std::string& why, bool is_of_silent_peer) noexcept {
  const auto found = links_.find(&link);
  if (!is_running_ || found == links_.end()) return false;
  Entry& entry = found->second;
  // A return gives way, because the link needs its detours now.
  const bool gives_way = entry.repair && entry.repair->is_return && !entry.repair->exchange;
  if (entry.repair && !gives_way) return true;
  try {
    const Clock::time_point now = Clock::now();
    const bool is_lower = options_.self.rank < entry.about.peer;
    entry.repair.emplace(Repair{.why = why,
                                .there = address_to_dial(entry.about),
                                .since = now,
                                .deadline = now + options_.patience,
                                .next_dial = is_lower ? now + kLowerRankWaits : now,
                                .is_of_silent_peer = is_of_silent_peer,
                                .received = received(entry, is_of_silent_peer),
                                .exchange_ends = {},
                                .dial = {},
                                .exchange = {}});
    if (!gives_way) ++open_;
    return true;
  } catch (const std::exception&) {
    return false;  // Memory has run out.
  }
}

std::optional<Address> Repairs::address_to_dial(const RepairedLink& about) const {
  if (about.dialled_here) return about.there;
  return about.relay < 0 ? options_.listener_of(about.peer, about.there) : std::nullopt;
}

void Repairs::close(Entry& entry) noexcept {
  if (!entry.repair) return;
  entry.repair.reset();
  --open_;
}

bool Repairs::begin(TcpLink& link, const std::string& why) noexcept {
  if (!open(link, why)) return false;
  // A suspicion or an earlier connection may have begun the repair, so the deadline is reset.
  Repair& repair = *links_.find(&link)->second.repair;
  repair.deadline = Clock::now() + options_.patience;
  repair.is_resumed = repair.is_return = false;
  return true;
}

/// Returns the number of bytes received over the link and, if `with_control`, over the control
/// connection to the same peer.
transport::tcp::StreamOffset Repairs::received(const Entry& entry, bool with_control) const {
  transport::tcp::StreamOffset sum = entry.link.received();
  if (!with_control) return sum;
  for (const auto& [link, each] : links_) {
    const bool is_control = each.about.key.purpose == Purpose::control;
    if (is_control && each.about.peer == entry.about.peer && link != &entry.link)
      sum += link->received();
  }
  return sum;
}

void Repairs::suspect(TcpLink& link) noexcept {
  (void)open(link, "that rank's host acknowledged no data for a while");
}

void Repairs::suspect_all(int peer) noexcept {
  for (auto& [link, entry] : links_) {
    if (entry.about.peer == peer)
      (void)open(*link, "nothing arrived from that rank for a while", true);
  }
}

std::vector<transport::Receipt> Repairs::take_receipts() {
  std::vector<transport::Receipt> due = std::exchange(last_receipts_, {});
  if (relayed_ == 0) return due;
  for (auto& [link, entry] : links_) {
    if (entry.about.relay < 0 || link->received() - entry.receipt < kReceiptBytes) continue;
    entry.receipt = link->received();
    due.push_back({WorldRank(entry.about.peer), entry.about.key, entry.receipt});
  }
  return due;
}

void Repairs::hear(const transport::Receipt& receipt) const {
  for (const auto& [link, entry] : links_) {
    const RepairedLink& about = entry.about;
    if (about.relay >= 0 && about.key == receipt.key && WorldRank(about.peer) == receipt.peer)
      entry.link.received_by_peer(receipt.bytes);
  }
}

/// Decides between two connections for the same link, if each rank has dialled: the one that the
/// higher rank dialled is used.
void Repairs::accept(Newcomer newcomer) {
  const auto found = std::ranges::find_if(links_, [&](const auto& each) {
    return each.second.about.number == newcomer.key.group &&
           each.second.about.peer == newcomer.peer;
  });
  if (found == links_.end()) {
    if (unknown_.size() == kMostUnknown) unknown_.pop_front();
    unknown_.push_back({{std::move(newcomer.socket), RepairExchange::Role::acceptor, nullptr},
                        Clock::now() + kUnknownLimit});
    return;
  }
  if (!open(*found->first, "that rank made a new connection")) return;
  Repair& repair = *found->second.repair;
  const bool is_higher = options_.self.rank > newcomer.peer;
  if (is_higher && repair.exchange && repair.exchange->role() == RepairExchange::Role::dialer)
    return;
  repair.dial.reset();
  repair.is_resumed = repair.is_return = false;
  begin_exchange(found->second, std::move(newcomer.socket), RepairExchange::Role::acceptor);
}

/// From now on, the link depends on the new connection, so the repair's time limit begins anew.
void Repairs::begin_exchange(Entry& entry, Socket socket, RepairExchange::Role role) {
  Repair& repair = *entry.repair;
  const Clock::time_point now = Clock::now();
  repair.exchange.emplace(std::move(socket), role, &entry.link);
  repair.exchange_ends = now + std::max(options_.patience / kTalks, kShortestTalk);
  repair.deadline = now + options_.patience;
}

void Repairs::end_exchange(Entry& entry, Clock::time_point now) {
  Repair& repair = *entry.repair;
  repair.exchange.reset();
  // The exchange has paused the link, so any path will do.
  if (std::exchange(repair.is_return, false)) repair.why = "its own path failed again";
  const bool is_lower = options_.self.rank < entry.about.peer;
  repair.next_dial = now + kPause * (is_lower ? std::min(1 << repair.failures, kLongestFactor) : 1);
  repair.failures = std::min(repair.failures + 1, kLongestFactor);
}

void Repairs::progress(Clock::time_point now) {
  has_repaired_ = false;
  unknown_.remove_if([&](Unknown& each) {
    return now >= each.deadline || each.exchange.advance() != State::waiting;
  });
  if (now >= next_return_) begin_returns(now);
  if (open_ == 0) return;
  for (auto each = links_.begin(); each != links_.end();) {  // advance() may remove the entry.
    const TcpLink* const link = each->first;
    Entry& entry = (each++)->second;
    if (!entry.repair) continue;
    try {
      advance(entry, now);
    } catch (const std::exception& error) {
      if (links_.contains(link)) give_up(entry, error.what(), false);
    }
  }
}

/// Begins to dial along the own paths of links that use a detour.
void Repairs::begin_returns(Clock::time_point now) {
  next_return_ = Clock::time_point::max();
  for (auto& [link, entry] : links_) {
    if (now >= entry.return_at) {
      entry.return_at = now + entry.between_returns;
      if (!entry.repair && open(*link, "its own path works again")) entry.repair->is_return = true;
    }
    next_return_ = std::min(next_return_, entry.return_at);
  }
}

void Repairs::advance(Entry& entry, Clock::time_point now) {
  Repair& repair = *entry.repair;
  if (repair.is_resumed) {
    if (entry.link.send_again()) close(entry);
    return;
  }
  const bool is_broken = entry.link.is_broken();
  for (const int rank : {entry.about.peer, entry.about.relay}) {
    if (is_broken && entry.about.relay >= 0 && options_.has_ended(rank)) {
      return give_up(
          entry, fmt::format("{}, and the process of rank {} has ended", repair.why, rank), true);
    }
  }
  if (!is_broken && !repair.exchange && !repair.is_return &&
      received(entry, repair.is_of_silent_peer) != repair.received)
    return close(entry);  // The connection works after all.
  if (now >= repair.deadline) {
    if (!is_broken) return close(entry);
    return give_up(entry,
                   fmt::format("{}, and no new connection could be made within {:.3g} s{}",
                               repair.why, seconds_between(repair.since, now),
                               repair.dial ? " (" + repair.dial->outcomes() + ")" : ""),
                   false);
  }
  if (repair.exchange) return advance_exchange(entry, now);
  if (repair.there && !repair.dial && now >= repair.next_dial)
    repair.dial.emplace(request_for(entry));
  if (repair.dial) advance_dial(entry, now);
}

DialRequest Repairs::request_for(const Entry& entry) const {
  DialRequest request{.self = options_.self,
                      .peer = entry.about.peer,
                      .key = {entry.about.number, Purpose::repair, 0},
                      .deadline = entry.repair->deadline};
  if (entry.about.relay < 0) {
    request.candidates.push_back({*entry.repair->there, entry.about.here, {}});
    if (options_.detours && !entry.repair->is_return)
      std::ranges::move(options_.detours(entry.about), std::back_inserter(request.candidates));
  } else {
    options_.fill_in_relay(request);
  }
  request.attempt_limit = attempt_limit_within(options_.patience);
  request.longest_back_off = kPause;
  request.handshake_limit = std::max(options_.patience / kTalks, kShortestTalk);
  request.buffer_bytes = options_.socket_buffer_bytes;
  request.refused_for = kRefusedFor;
  request.one_refusal_suffices = true;
  return request;
}

void Repairs::advance_dial(Entry& entry, Clock::time_point now) {
  Repair& repair = *entry.repair;
  if (!repair.dial->advance(now)) return;
  if (Socket socket = repair.dial->take_socket()) {
    repair.dial.reset();
    begin_exchange(entry, std::move(socket), RepairExchange::Role::dialer);
    return advance_exchange(entry, now);
  }
  if (repair.is_return && !entry.link.is_broken()) return close(entry);
  const bool is_refused = repair.dial->last_error() == ECONNREFUSED && now < repair.deadline;
  if (is_refused || repair.dial->was_refused()) {
    const int relay = entry.about.relay;
    const std::string who = relay < 0 ? "its process" : fmt::format("rank {}, the relay,", relay);
    return give_up(entry,
                   fmt::format("{}, and {} no longer accepts connections at {}", repair.why, who,
                               repair.there->text()),
                   true);
  }
  repair.dial.reset();
  repair.next_dial = now + kPause;
}

void Repairs::advance_exchange(Entry& entry, Clock::time_point now) {
  Repair& repair = *entry.repair;
  switch (repair.exchange->advance()) {
    case State::waiting:
      if (now >= repair.exchange_ends) end_exchange(entry, now);
      return;
    case State::done:
      return finish(entry, now);
    case State::unknown:
      // The peer may not know the link yet, because it has not finished the handshake of the
      // present connection. The link then keeps that connection, if it is still open.
      if (entry.link.unpause()) return close(entry);
      return give_up(entry, repair.why + ", and that rank no longer has the link", false);
    case State::broken:
      return end_exchange(entry, now);
  }
}

void Repairs::finish(Entry& entry, Clock::time_point now) {
  RepairExchange exchange = *std::exchange(entry.repair->exchange, std::nullopt);
  const std::string before = entry.link.description();
  Socket socket = exchange.take_socket();
  entry.return_at = Clock::time_point::max();
  if (entry.about.is_own_path(socket.local(), socket.remote())) {
    entry.returned_at = now;
  } else if (exchange.role() == RepairExchange::Role::dialer) {
    const bool was_stable = now - entry.returned_at >= kStable;
    entry.between_returns =
        was_stable ? kBetweenReturns : std::min(2 * entry.between_returns, kLongestBetweenReturns);
    entry.return_at = now + entry.between_returns;
    next_return_ = std::min(next_return_, entry.return_at);
  }
  options_.prepare(socket, entry.about.key);
  entry.repair->is_resumed = true;
  const transport::tcp::StreamOffset missing =
      entry.link.resume(std::move(socket), exchange.peer_has());
  const bool is_news = entry.about.key.purpose == Purpose::control || missing > 0;
  const std::string text = fmt::format(
      "the connection to rank {} ({}) was replaced after {:.3g} s, without loss of data: {}. The "
      "new connection is {}",
      entry.about.peer, before,
      seconds_between(entry.repair->since, std::max(now, entry.repair->since)), entry.repair->why,
      entry.link.description());
  if (is_news && !entry.repair->is_return) {
    entry.warnings.write(options_.log, LogLevel::warn, now, text);
  } else {
    options_.log.info("{}", text);
  }
  has_repaired_ = true;
  if (options_.on_repaired) options_.on_repaired();
}

void Repairs::give_up(Entry& entry, const std::string& why, bool has_died) {
  TcpLink& link = entry.link;
  close(entry);
  link.give_up(why, has_died);  // Calls forget(), which removes the entry.
}

void Repairs::watch(std::vector<pollfd>& descriptors) const {
  for (const Unknown& each : unknown_) descriptors.push_back(each.exchange.watched());
  if (open_ == 0) return;
  for (const auto& [link, entry] : links_) {
    if (!entry.repair) continue;
    if (entry.repair->dial) entry.repair->dial->watch(descriptors);
    if (entry.repair->exchange) descriptors.push_back(entry.repair->exchange->watched());
    if (entry.repair->is_resumed) descriptors.push_back({entry.link.descriptor(), POLLOUT, 0});
  }
}

Clock::time_point Repairs::next_deadline() const {
  if (has_repaired_) return Clock::time_point::min();
  Clock::time_point next = next_return_;
  for (const Unknown& each : unknown_) next = std::min(next, each.deadline);
  if (open_ == 0) return next;
  for (const auto& [link, entry] : links_) {
    if (!entry.repair || entry.repair->is_resumed) continue;
    next = std::min(next, entry.repair->deadline);
    // has_ended() may become true at any time.
    if (entry.about.relay >= 0) next = std::min(next, Clock::now() + kPause);
    if (entry.repair->dial) {
      next = std::min(next, entry.repair->dial->next_deadline());
    } else if (entry.repair->exchange) {
      next = std::min(next, entry.repair->exchange_ends);
    } else if (entry.repair->there) {
      next = std::min(next, entry.repair->next_dial);
    }
  }
  return next;
}

}  // namespace mccl::rendezvous
