// The listener's side of a handshake. A connection that waits to prove that it belongs to the job
// is a guest.
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

/// A member of the job that has connected. Its settings may keep it out: then `reason` is set and
/// `socket` is not.
struct Newcomer {
  int peer = -1;
  transport::LinkKey key;
  transport::tcp::Socket socket;
  std::string reason;
};

/// Holds a bounded number of guests, each for a bounded time. When one more connects than there is
/// room for, one guest leaves. These leave first, in this order:
///
/// 1. Guests that have not proved the job's key. A flood without the key never does.
/// 2. Once all ranks have met: guests from addresses that are no peer's. Together they may have
///    many addresses, so each must not count for itself.
/// 3. Guests that have not sent their hello, which peers send at once.
/// 4. Guests of an address that has more than its share of the room: the one that has most.
///
/// Among equals chance decides. So a flood that does all that a peer can do without the key delays
/// a peer, but keeps none out for ever.
class Acceptor {
 public:
  Acceptor(std::vector<transport::tcp::Listener> listeners, Party self, Log log,
           std::function<void()> on_refused);

  /// All ranks have met, and `peers` are the addresses that they are known to have. Those that
  /// proven connections come from count as peers' too, before this call and after it. From now on
  /// connections are accepted at a limited rate, so that a flood takes a bounded share of the
  /// engine's time.
  void everyone_is_here(const std::vector<transport::tcp::Address>& peers, Clock::time_point now);

  void listen_also(transport::tcp::Listener listener) { listeners_.push_back(std::move(listener)); }

  /// Does what can be done now.
  void advance(Clock::time_point now, std::vector<Newcomer>& newcomers);

  /// Why this rank has accepted no connections for a while; empty when it accepts them.
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
  /// False once the visit has ended.
  bool advance(Guest& guest, Clock::time_point now, std::vector<Newcomer>& newcomers);
  void arrived(Guest& guest, std::vector<Newcomer>& newcomers);
  void turn_away(const Guest& guest, LogLevel level, const std::string& why, Clock::time_point now);
  void refused(const Guest& guest, Clock::time_point now, std::vector<Newcomer>& newcomers);

  std::vector<transport::tcp::Listener> listeners_;
  Party self_;
  Log log_;
  Turnstile turnstile_;
  Guests guests_;                                 ///< Oldest first.
  std::map<std::string, std::size_t> guests_of_;  ///< By host.
  std::set<std::string> hosts_of_peers_;
  bool all_have_met_ = false;
  std::minstd_rand chance_{std::random_device{}()};
};

}  // namespace mccl::rendezvous
