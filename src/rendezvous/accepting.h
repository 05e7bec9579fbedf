// The listener's side: everyone who connects is a stranger until proven.
#pragma once

#include <poll.h>

#include <functional>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "rendezvous/conversation.h"
#include "rendezvous/handshake.h"
#include "rendezvous/turnstile.h"
#include "transport/tcp/listener.h"

namespace mccl::rendezvous {

/// A member of the job that connected: `socket`, or the reason why its settings keep it out.
struct Newcomer {
  int peer = -1;
  transport::LinkKey key;
  transport::tcp::Socket socket;
  std::string reason;
};

/// Holds a bounded number of unproven connections, each for a bounded time. When there are too
/// many, one leaves of the address that has most of them, so that a flood from one address does not
/// keep out peers at others. A peer at the same address has its chance, too: a connection that has
/// said nothing leaves before one that has begun the handshake.
class Acceptor {
 public:
  Acceptor(std::vector<transport::tcp::Listener> listeners, Party self, Log log,
           std::function<void()> on_refused);

  /// All ranks have met: from now on connections are accepted at a limited rate, so that a flood
  /// of them takes a bounded share of the engine's time.
  void everyone_is_here(Clock::time_point now);

  /// Does what can be done now.
  void advance(Clock::time_point now, std::vector<Newcomer>& newcomers);

  /// Why peers that connect are kept waiting, once they have been for a while; empty when they are
  /// not.
  std::string trouble(Clock::time_point now) const;

  void watch(std::vector<pollfd>& descriptors) const;
  Clock::time_point next_deadline() const;
  void close() noexcept;

 private:
  struct Guest {
    Conversation conversation;
    transport::tcp::Address from;
    Clock::time_point deadline;

    std::string host() const;
  };
  using Guests = std::list<Guest>;

  void admit(Clock::time_point now);
  void make_room(Clock::time_point now);
  Guests::iterator end_visit(Guests::iterator guest);
  std::vector<bool> ready_guests() const;
  void watch_guests(std::vector<pollfd>& descriptors) const;
  /// False once the guest is no more.
  bool advance(Guest& guest, Clock::time_point now, std::vector<Newcomer>& newcomers);
  void arrived(Guest& guest, std::vector<Newcomer>& newcomers);
  void turn_away(const Guest& guest, LogLevel level, const std::string& why, Clock::time_point now);
  void refused(const Guest& guest, Clock::time_point now, std::vector<Newcomer>& newcomers);

  std::vector<transport::tcp::Listener> listeners_;
  Party self_;
  Log log_;
  Turnstile turnstile_;
  Guests guests_;                                 ///< Oldest first.
  std::map<std::string, std::size_t> guests_of_;  ///< By the bytes of their address.
};

}  // namespace mccl::rendezvous
