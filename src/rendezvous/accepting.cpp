#include "rendezvous/accepting.h"

#include <algorithm>
#include <utility>

namespace mccl::rendezvous {

namespace {

using namespace std::chrono_literals;
using transport::tcp::Accepted;
using transport::tcp::Listener;

constexpr std::size_t kMaxGuests = 128;
constexpr int kMaxAcceptedAtOnce = 64;
constexpr Clock::duration kGuestLimit = 5s;
constexpr Clock::duration kPause = 100ms;

}  // namespace

Acceptor::Acceptor(std::vector<Listener> listeners, Party self, Log log,
                   std::function<void()> on_refused)
    : listeners_(std::move(listeners)),
      self_(std::move(self)),
      log_(std::move(log)),
      on_refused_(std::move(on_refused)) {}

void Acceptor::advance(Clock::time_point now, std::vector<Arrival>& arrivals) {
  if (now >= paused_until_) admit(now);
  for (auto guest = guests_.begin(); guest != guests_.end();)
    guest = advance(*guest, now, arrivals) ? std::next(guest) : guests_.erase(guest);
}

void Acceptor::admit(Clock::time_point now) {
  for (Listener& listener : listeners_) {
    for (int i = 0; i < kMaxAcceptedAtOnce; ++i) {
      Accepted accepted = listener.accept();
      if (accepted.error != 0) {
        log_.warn(
            "cannot accept connections for now: {}; raise the limit of open files (ulimit -n)",
            transport::tcp::describe_errno(accepted.error));
        paused_until_ = now + kPause;
        return;
      }
      if (!accepted.socket) break;
      if (guests_.size() == kMaxGuests) {
        turn_away(guests_.front(), "too many others wait to prove themselves");
        guests_.pop_front();
      }
      guests_.push_back({Conversation(std::move(accepted.socket), Handshake::acceptor(self_)),
                         accepted.from, now + kGuestLimit});
    }
  }
}

bool Acceptor::advance(Guest& guest, Clock::time_point now, std::vector<Arrival>& arrivals) {
  switch (guest.conversation.advance()) {
    case Conversation::State::done:
      arrived(guest, arrivals);
      return false;
    case Conversation::State::refused:
    case Conversation::State::broken:
      refused(guest, arrivals);
      return false;
    case Conversation::State::waiting:
      break;
  }
  if (now < guest.deadline) return true;
  turn_away(guest, "it did not prove itself in time");
  return false;
}

void Acceptor::arrived(Guest& guest, std::vector<Arrival>& arrivals) {
  const Handshake& handshake = guest.conversation.handshake();
  if (handshake.peer() == self_.rank) {
    log_.warn(
        "a process at {} says that it is rank {}, as this one does; give every process a "
        "rank of its own (MCCL_RANK)",
        guest.from.text(), self_.rank);
    return;
  }
  if (handshake.key().purpose == Purpose::store) {
    log_.warn(
        "rank {} at {} looks for the store here, where rank {} meets its peers; MCCL_ROOT "
        "must name another port",
        handshake.peer(), guest.from.text(), self_.rank);
    return;
  }
  arrivals.push_back({handshake.peer(), handshake.key(), guest.conversation.take_socket(), {}});
}

void Acceptor::refused(const Guest& guest, std::vector<Arrival>& arrivals) {
  const Handshake& handshake = guest.conversation.handshake();
  const std::string& why = guest.conversation.trouble();
  if (!handshake.proven()) return turn_away(guest, why);
  if (handshake.refusal() == Refusal::settings) {
    arrivals.push_back(
        {handshake.peer(),
         handshake.key(),
         {},
         fmt::format("rank {} at {}: {}", handshake.peer(), guest.from.text(), why)});
    return;
  }
  // A member that meant another rank, or gave this address up for a better one.
  log_.debug("closed the connection of rank {} at {}: {}", handshake.peer(), guest.from.text(),
             why);
}

void Acceptor::turn_away(const Guest& guest, const std::string& why) {
  if (guest.conversation.handshake().proven()) {
    log_.debug("gave up the connection of rank {} at {}: {}", guest.conversation.handshake().peer(),
               guest.from.text(), why);
    return;
  }
  log_.info("refused a connection from {}: {}", guest.from.text(), why);
  if (on_refused_) on_refused_();
}

void Acceptor::watch(std::vector<pollfd>& descriptors) const {
  if (Clock::now() >= paused_until_) {
    for (const Listener& listener : listeners_)
      descriptors.push_back({listener.descriptor(), POLLIN, 0});
  }
  for (const Guest& guest : guests_)
    descriptors.push_back({guest.conversation.descriptor(), guest.conversation.events(), 0});
}

Clock::time_point Acceptor::next_deadline() const {
  Clock::time_point next = Clock::now() < paused_until_ ? paused_until_ : Clock::time_point::max();
  for (const Guest& guest : guests_) next = std::min(next, guest.deadline);
  return next;
}

void Acceptor::close() noexcept {
  listeners_.clear();
  guests_.clear();
}

}  // namespace mccl::rendezvous
