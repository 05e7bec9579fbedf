// The listener's side of a handshake. A guest is a connection whose handshake is not finished.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/rare_line.h"
#include "rendezvous/connections/conversation.h"

namespace mccl::rendezvous {

/// A token bucket: at most `at_once` connections in a burst, and `per_second` on average.
struct AdmissionRate {
  double at_once = 0;
  double per_second = 0;
};

/// Limits the rate at which an Acceptor accepts connections, and logs errors and refusals. The
/// caller passes the current time. Not thread-safe.
class Turnstile {
 public:
  /// `on_refused` is called for every refused connection; it may be null.
  Turnstile(Log log, std::function<void()> on_refused);

  /// Limits the rate from now on; it is unlimited before.
  void limit(AdmissionRate rate, Clock::time_point now);

  /// Returns true if the next connection may be accepted. Otherwise the listeners need not be
  /// polled before opens_at().
  bool open(Clock::time_point now);
  void admitted();
  /// Time until which open() returns false; Clock::time_point::max() if the last call of open()
  /// returned true.
  Clock::time_point opens_at() const { return opens_at_; }

  /// Records the errno of accept(), or 0. After an error, open() returns false for a short pause.
  /// Only the first of consecutive errors is logged, with advice.
  void accept_gave(int error, Clock::time_point now);
  /// Returns the errno of accept() if it has failed for lack of file descriptors for at least
  /// kPatienceWithoutFiles; else 0.
  int lacks_files(Clock::time_point now) const;

  /// A stranger has not proved that it has the job's key. A member has, and a twin is a member that
  /// claims to be this rank.
  enum class Who : std::uint8_t { stranger, member, twin };
  /// Counts a refused connection and logs it. For the next minute, refusals of the same level and
  /// of the same `who` are only counted; the next log line contains their number. So strangers
  /// cannot hide the refusal of a member.
  void turned_away(LogLevel level, Who who, const std::string& from, const std::string& why,
                   Clock::time_point now);

 private:
  Log log_;
  std::function<void()> on_refused_;
  std::optional<AdmissionRate> rate_;
  double tokens_ = 0;
  Clock::time_point filled_at_;
  Clock::time_point opens_at_ = Clock::time_point::max();
  Clock::time_point pause_ends_ = Clock::time_point::min();
  int out_of_room_ = 0;  ///< The errno of the last accept(); 0 if it succeeded.
  Clock::time_point out_of_room_since_;
  RareLine no_room_;
  std::map<std::pair<LogLevel, Who>, RareLine> lines_;
};

/// A connection from a process that has proved that it belongs to the job. If its settings differ
/// from those of this rank, `reason` says how, and `socket` is empty.
struct Newcomer {
  int peer = -1;
  LinkKey key;
  Socket socket;
  std::string reason;
  Address from;
  std::uint64_t link_number = 0;  ///< See Handshake::link_number().
};

/// Accepts connections and runs their handshakes. Holds at most kMaxGuests guests, each for at most
/// kGuestLimit. If a connection arrives while there are kMaxGuests guests, one guest is closed,
/// chosen in this order:
///
/// 1. Guests that have not proved that they know the job key. Connections without the key never
///    prove it.
/// 2. Once all ranks have joined: guests whose address is not that of a peer. The last rule alone
///    does not stop a flood from many addresses.
/// 3. Guests of an address that has more than half of all guests, and more than kShare. So a flood
///    from one address cannot take the places of others by sending hello messages.
/// 4. Guests that have not sent their hello message. Peers send it immediately.
/// 5. Guests of the address with the most guests, if they are more than kShare.
///
/// Ties are broken at random. A process without the key can therefore delay peers by a flood of
/// connections, but cannot exclude a peer forever, however well it imitates one.
class Acceptor {
 public:
  /// `on_refused` is called for every refused connection; it may be null. `where` is appended to
  /// the log lines about refusals.
  Acceptor(std::vector<Listener> listeners, Party self, Log log, std::function<void()> on_refused,
           std::string where = {});

  /// Must be called once all ranks have joined; `peers` are their known addresses. The source of
  /// every authenticated connection also counts as the address of a peer, even before this call.
  /// From now on, the rate of connections is limited, so that a flood takes a bounded share of the
  /// engine's time.
  void everyone_is_here(const std::vector<Address>& peers, Clock::time_point now);

  void limit(AdmissionRate rate, Clock::time_point now) { turnstile_.limit(rate, now); }
  void listen_also(Listener listener) { listeners_.push_back(std::move(listener)); }

  /// Does all work that is possible without blocking. Appends to `newcomers` the connections whose
  /// handshake has shown that the other side is a member of the job.
  void advance(Clock::time_point now, std::vector<Newcomer>& newcomers);

  /// Counts and logs that the caller refuses a connection that advance() has returned.
  void refuse(const Newcomer& newcomer, LogLevel level, const std::string& why,
              Clock::time_point now);

  /// Returns an error text if no descriptor has been free for kPatienceWithoutFiles; else empty.
  std::string trouble(Clock::time_point now) const;

  void watch(std::vector<pollfd>& descriptors) const;
  Clock::time_point next_deadline() const;
  void close() noexcept;

 private:
  struct Guest {
    Conversation conversation;
    Address from;
    std::string host;  ///< The address bytes of `from`, without the port.
    Clock::time_point deadline;
  };
  using Guests = std::list<Guest>;
  struct Claim;

  void admit(Clock::time_point now, std::vector<Newcomer>& newcomers);
  void make_room(Clock::time_point now);
  Claim claim_of(const Guest& guest) const;
  Guests::iterator end_visit(Guests::iterator guest);
  void watch_guests(std::vector<pollfd>& descriptors) const;
  /// Returns false once the guest must be removed from guests_.
  bool advance(Guest& guest, Clock::time_point now, std::vector<Newcomer>& newcomers);
  bool claims_this_rank(const Guest& guest, Clock::time_point now);
  void arrived(Guest& guest, Clock::time_point now, std::vector<Newcomer>& newcomers);
  void turn_away(const Guest& guest, LogLevel level, const std::string& why, Clock::time_point now);
  void refused(const Guest& guest, Clock::time_point now, std::vector<Newcomer>& newcomers);

  std::vector<Listener> listeners_;
  Party self_;
  Log log_;
  const std::string where_;
  Turnstile turnstile_;
  Guests guests_;                                 ///< Oldest first.
  std::map<std::string, std::size_t> guests_of_;  ///< Number of guests by Guest::host.
  std::set<std::string> hosts_of_peers_;
  bool all_have_met_ = false;
  std::minstd_rand chance_{std::random_device{}()};
};

}  // namespace mccl::rendezvous
