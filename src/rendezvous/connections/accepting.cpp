#include "rendezvous/connections/accepting.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/open_files.h"

namespace mccl::rendezvous {

namespace {

using transport::tcp::Accepted;

constexpr std::size_t kMaxGuests = 128;
/// If more than kShare guests have one address, they are closed before otherwise equal guests of
/// other addresses. It is more than 1, because several ranks of a host may connect at once.
constexpr std::size_t kShare = 16;
/// Maximum number of connections accepted from a listener before the guests' messages are read
/// again. It is smaller than kMaxGuests, so that new connections cannot displace all guests first.
constexpr int kMaxAcceptedAtOnce = 64;
constexpr Clock::duration kGuestLimit = 5s;
/// Minimum burst of the rate limit: the size of the system's queue of a listener, so that a peer's
/// connection at the end of a full queue is accepted without a pause.
constexpr int kLeastAtOnce = 1024;
constexpr int kAtOncePerRank = 2;
/// Average rate limit. Each accepted connection takes about 10 us of the engine's time.
constexpr double kPerSecond = 20'000;

constexpr Clock::duration kPauseOutOfRoom = 100ms;
/// Approximate pause at the rate limit, in seconds, so that one wake-up serves several connections.
constexpr double kBatchSeconds = 0.01;

std::string host_of(const Address& address) {
  const auto bytes = address.raw();
  return {bytes.begin(), bytes.end()};
}

/// Returns the level at which a refusal is logged: WARN for a wrong key or version, which the user
/// must correct; INFO for any other reason, such as bytes of another protocol, which any reachable
/// port receives.
LogLevel level_of(Refusal refusal) {
  const bool was_meant_for_us = refusal == Refusal::proof || refusal == Refusal::version;
  return was_meant_for_us ? LogLevel::warn : LogLevel::info;
}

}  // namespace

Turnstile::Turnstile(Log log, std::function<void()> on_refused)
    : log_(std::move(log)), on_refused_(std::move(on_refused)) {}

void Turnstile::limit(AdmissionRate rate, Clock::time_point now) {
  rate_ = rate;
  tokens_ = rate.at_once;
  filled_at_ = now;
}

bool Turnstile::open(Clock::time_point now) {
  opens_at_ = Clock::time_point::max();
  if (now < pause_ends_) {
    opens_at_ = pause_ends_;
    return false;
  }
  if (!rate_) return true;
  const double passed = std::chrono::duration<double>(now - filled_at_).count();
  tokens_ = std::min(rate_->at_once, tokens_ + passed * rate_->per_second);
  filled_at_ = now;
  if (tokens_ >= 1) return true;
  const double batch = std::clamp(kBatchSeconds * rate_->per_second, 1.0, rate_->at_once);
  const std::chrono::duration<double> wait((batch - tokens_) / rate_->per_second);
  pause_ends_ = opens_at_ = now + std::chrono::ceil<Clock::duration>(wait);
  return false;
}

void Turnstile::admitted() {
  if (rate_) tokens_ -= 1;
}

void Turnstile::accept_gave(int error, Clock::time_point now) {
  const int before = std::exchange(out_of_room_, error);
  if (error == 0) return;
  pause_ends_ = opens_at_ = now + kPauseOutOfRoom;
  if (before != 0) return;
  out_of_room_since_ = now;
  const char* const advice =
      mccl::lacks_files(error) ? "" : "; end other programs, or give this program more memory";
  no_room_.write(log_, LogLevel::warn, now,
                 fmt::format("this rank cannot accept connections for now, but keeps trying: {}{}",
                             describe_errno(error), advice));
}

int Turnstile::lacks_files(Clock::time_point now) const {
  const bool for_long = now - out_of_room_since_ >= kPatienceWithoutFiles;
  return mccl::lacks_files(out_of_room_) && for_long ? out_of_room_ : 0;
}

void Turnstile::turned_away(LogLevel level, Who who, const std::string& from,
                            const std::string& why, Clock::time_point now) {
  if (on_refused_) on_refused_();
  lines_[{level, who}].write(log_, level, now,
                             fmt::format("refused a connection from {}: {}", from, why));
}

/// Order in which guests are closed: the one with the greatest Claim first.
struct Acceptor::Claim {
  bool is_unproven;
  /// True if all ranks have joined and the guest's address is not that of a peer.
  bool is_stranger;
  bool is_of_majority;  ///< More than half of the guests have this address.
  bool is_silent;
  std::size_t crowd;  ///< Number of guests with the same address if it exceeds kShare; else 0.

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 mistakes the comparison for a pointer.
  friend auto operator<=>(const Claim&, const Claim&) = default;
};

Acceptor::Acceptor(std::vector<Listener> listeners, Party self, Log log,
                   std::function<void()> on_refused, std::string where)
    : listeners_(std::move(listeners)),
      self_(std::move(self)),
      log_(log),
      where_(std::move(where)),
      turnstile_(std::move(log), std::move(on_refused)) {}

void Acceptor::everyone_is_here(const std::vector<Address>& peers, Clock::time_point now) {
  all_have_met_ = true;
  for (const Address& peer : peers) hosts_of_peers_.insert(host_of(peer));
  turnstile_.limit(
      {static_cast<double>(std::max(kLeastAtOnce, kAtOncePerRank * self_.size)), kPerSecond}, now);
}

/// Serves the guests before it accepts other connections, so that no guest is closed while its
/// proof has arrived but is unread. Polls all guests in one system call, so that many silent guests
/// are not read one by one.
void Acceptor::advance(Clock::time_point now, std::vector<Newcomer>& newcomers) {
  std::vector<pollfd> entries;
  watch_guests(entries);
  if (!entries.empty()) (void)::poll(entries.data(), static_cast<nfds_t>(entries.size()), 0);
  auto entry = entries.begin();
  for (auto guest = guests_.begin(); guest != guests_.end(); ++entry) {
    const bool due = entry->revents != 0 || now >= guest->deadline;
    guest = !due || advance(*guest, now, newcomers) ? std::next(guest) : end_visit(guest);
  }
  admit(now, newcomers);
}

void Acceptor::admit(Clock::time_point now, std::vector<Newcomer>& newcomers) {
  for (Listener& listener : listeners_) {
    for (int i = 0; i < kMaxAcceptedAtOnce; ++i) {
      if (!turnstile_.open(now)) return;
      Accepted accepted = listener.accept();
      turnstile_.accept_gave(accepted.error, now);
      if (!accepted.socket) break;
      turnstile_.admitted();
      if (guests_.size() == kMaxGuests) make_room(now);
      Party self = self_;
      self.port = listener.address().port();
      guests_.push_back(
          {Conversation(std::move(accepted.socket), Handshake::acceptor(std::move(self))),
           accepted.from, host_of(accepted.from), now + kGuestLimit});
      ++guests_of_[guests_.back().host];
      // The guest's hello may have arrived with the connection. It is read now, because make_room()
      // prefers to close guests without a hello.
      const auto guest = std::prev(guests_.end());
      if (!advance(*guest, now, newcomers)) end_visit(guest);
    }
  }
}

void Acceptor::make_room(Clock::time_point now) {
  auto leaving = guests_.begin();
  Claim least = claim_of(*leaving);
  std::uint_fast32_t equals = 1;
  for (auto guest = std::next(leaving); guest != guests_.end(); ++guest) {
    const Claim claim = claim_of(*guest);
    if (claim < least) continue;
    equals = claim == least ? equals + 1 : 1;
    least = claim;
    // Reservoir sampling: each of n guests with equal claims is chosen with probability 1/n.
    if (chance_() % equals == 0) leaving = guest;
  }
  turn_away(*leaving, LogLevel::info, "too many other connections wait to authenticate", now);
  end_visit(leaving);
}

Acceptor::Claim Acceptor::claim_of(const Guest& guest) const {
  const Handshake& handshake = guest.conversation.handshake();
  const std::size_t guests = guests_of_.at(guest.host);
  return {.is_unproven = !handshake.proven(),
          .is_stranger = all_have_met_ && !hosts_of_peers_.contains(guest.host),
          .is_of_majority = guests > guests_.size() / 2 && guests > kShare,
          .is_silent = !handshake.has_begun(),
          .crowd = guests > kShare ? guests : 0};
}

Acceptor::Guests::iterator Acceptor::end_visit(Guests::iterator guest) {
  const auto count = guests_of_.find(guest->host);
  if (--count->second == 0) guests_of_.erase(count);
  return guests_.erase(guest);
}

bool Acceptor::advance(Guest& guest, Clock::time_point now, std::vector<Newcomer>& newcomers) {
  switch (guest.conversation.advance()) {
    case Conversation::State::done:
      arrived(guest, now, newcomers);
      return false;
    case Conversation::State::refused:
    case Conversation::State::broken:
      refused(guest, now, newcomers);
      return false;
    case Conversation::State::waiting:
      break;
  }
  if (now < guest.deadline) return true;
  turn_away(guest, LogLevel::info, "it did not authenticate in time", now);
  return false;
}

/// Logs a warning and returns true if the guest, which has proved that it knows the job key, claims
/// to be this rank.
bool Acceptor::claims_this_rank(const Guest& guest, Clock::time_point now) {
  if (guest.conversation.handshake().peer() != self_.rank) return false;
  turnstile_.turned_away(LogLevel::warn, Turnstile::Who::twin, guest.from.text(),
                         fmt::format("that process claims to be rank {}, which is this process; "
                                     "give every process its own rank (MCCL_RANK)",
                                     self_.rank),
                         now);
  return true;
}

void Acceptor::arrived(Guest& guest, Clock::time_point now, std::vector<Newcomer>& newcomers) {
  const Handshake& handshake = guest.conversation.handshake();
  hosts_of_peers_.insert(guest.host);
  if (claims_this_rank(guest, now)) return;
  newcomers.push_back({handshake.peer(),
                       handshake.key(),
                       guest.conversation.take_socket(),
                       {},
                       guest.from,
                       handshake.link_number()});
}

void Acceptor::refused(const Guest& guest, Clock::time_point now,
                       std::vector<Newcomer>& newcomers) {
  const Handshake& handshake = guest.conversation.handshake();
  const std::string& why = guest.conversation.trouble();
  if (!handshake.proven()) return turn_away(guest, level_of(handshake.refusal()), why, now);
  if (handshake.refusal() == Refusal::settings) {
    if (claims_this_rank(guest, now)) return;
    newcomers.push_back({handshake.peer(),
                         handshake.key(),
                         {},
                         fmt::format("rank {} at {}: {}", handshake.peer(), guest.from.text(), why),
                         guest.from});
    return;
  }
  // The peer is a member of the job. Either it meant to connect to another rank, or it has already
  // connected through another address and closed this connection.
  log_.debug("closed the connection of rank {} at {}: {}", handshake.peer(), guest.from.text(),
             why);
}

void Acceptor::turn_away(const Guest& guest, LogLevel level, const std::string& why,
                         Clock::time_point now) {
  if (guest.conversation.handshake().proven()) {
    log_.debug("gave up the connection of rank {} at {}: {}", guest.conversation.handshake().peer(),
               guest.from.text(), why);
    return;
  }
  turnstile_.turned_away(level, Turnstile::Who::stranger, guest.from.text(), why + where_, now);
}

void Acceptor::refuse(const Newcomer& newcomer, LogLevel level, const std::string& why,
                      Clock::time_point now) {
  turnstile_.turned_away(level, Turnstile::Who::member, newcomer.from.text(), why + where_, now);
}

std::string Acceptor::trouble(Clock::time_point now) const {
  const int error = turnstile_.lacks_files(now);
  return error == 0 ? "" : without_files(self_.rank, error);
}

void Acceptor::watch(std::vector<pollfd>& descriptors) const {
  if (turnstile_.opens_at() == Clock::time_point::max()) {
    for (const Listener& listener : listeners_)
      descriptors.push_back({listener.descriptor(), POLLIN, 0});
  }
  watch_guests(descriptors);
}

void Acceptor::watch_guests(std::vector<pollfd>& descriptors) const {
  for (const Guest& guest : guests_) descriptors.push_back(guest.conversation.watched());
}

Clock::time_point Acceptor::next_deadline() const {
  Clock::time_point next = turnstile_.opens_at();
  for (const Guest& guest : guests_) next = std::min(next, guest.deadline);
  return next;
}

void Acceptor::close() noexcept {
  listeners_.clear();
  guests_.clear();
  guests_of_.clear();
}

}  // namespace mccl::rendezvous
