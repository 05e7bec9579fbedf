// The listener's side of a handshake. A guest is a connection that has not yet proved that it
// belongs to the job.
#pragma once

#include <poll.h>

#include <functional>
#include <list>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "rendezvous/conversation.h"
#include "rendezvous/handshake.h"
#include "rendezvous/turnstile.h"
#include "transport/tcp/listener.h"

namespace mccl::rendezvous {

/// A connection from a proven member of the job. If the member's settings do not match, `reason` is
/// set and `socket` is empty.
struct Newcomer {
  int peer = -1;
  transport::LinkKey key;
  transport::tcp::Socket socket;
  std::string reason;
};

/// Holds a bounded number of guests, each for a bounded time. When a connection arrives and there
/// is no room, one guest leaves. Guests leave in this order:
///
/// 1. Guests that have not proved the job's key. A flood without the key never does.
/// 2. Once all ranks have met: guests from addresses that are not a peer's. A flood may use many
///    addresses, so the limit per address (4) does not stop it.
/// 3. Guests that have not sent their hello, which peers send at once.
/// 4. Guests of an address that has more than its share of the room: the address with most guests.
///
/// Among equals, one is chosen at random. So a flood that does everything a peer can do without the
/// key delays peers, but cannot keep one out forever.
class Acceptor {
 public:
  Acceptor(std::vector<transport::tcp::Listener> listeners, Party self, Log log,
           std::function<void()> on_refused);

  /// Called when all ranks have met; `peers` are their known addresses. Addresses from which proven
  /// connections come also count as peers' addresses, before this call and after it. From now on
  /// connections are accepted at a limited rate, so that a flood takes a bounded share of the
  /// engine's time.
  void everyone_is_here(const std::vector<transport::tcp::Address>& peers, Clock::time_point now);

  void listen_also(transport::tcp::Listener listener) { listeners_.push_back(std::move(listener)); }

  /// Does all work that is possible without blocking; appends the members that have connected.
  void advance(Clock::time_point now, std::vector<Newcomer>& newcomers);

  /// The reason why this rank has accepted no connections for a while; empty while it accepts them.
  std::string trouble(Clock::time_point now) const;

  void watch(std::vector<pollfd>& descriptors) const;
  Clock::time_point next_deadline() const;
  void close() noexcept;

 private:
  struct Guest {
    Conversation conversation;
    transport::tcp::Address from;
    std::string host;  ///< The bytes of `from`, without its port.
    Clock::time_point deadline;
  };
  using Guests = std::list<Guest>;
  struct Claim;

  void advance_guests(Clock::time_point now, std::vector<Newcomer>& newcomers);
  void admit(Clock::time_point now, std::vector<Newcomer>& newcomers);
  void make_room(Clock::time_point now);
  Claim claim_of(const Guest& guest) const;
  Guests::iterator end_visit(Guests::iterator guest);
  std::vector<bool> ready_guests() const;
  void watch_guests(std::vector<pollfd>& descriptors) const;
  /// Returns false once the guest must leave.
  bool advance(Guest& guest, Clock::time_point now, std::vector<Newcomer>& newcomers);
  void arrived(Guest& guest, std::vector<Newcomer>& newcomers);
  void turn_away(const Guest& guest, LogLevel level, const std::string& why, Clock::time_point now);
  void refused(const Guest& guest, Clock::time_point now, std::vector<Newcomer>& newcomers);

  std::vector<transport::tcp::Listener> listeners_;
  Party self_;
  Log log_;
  Turnstile turnstile_;
  Guests guests_;                                 ///< Oldest first.
  std::map<std::string, std::size_t> guests_of_;  ///< Number of guests by host.
  std::set<std::string> hosts_of_peers_;
  bool all_have_met_ = false;
  std::minstd_rand chance_{std::random_device{}()};
};

}  // namespace mccl::rendezvous
