// Makes new connections for links whose connection broke although the peer is alive.
//
// Either rank of the pair dials the other rank's listener. The handshake names the link by a number
// that both ranks derived from the first handshake of the link. A process that was restarted does
// not know this number. RepairExchange then continues the link over the new connection.
//
// If several paths join the two ranks, each link has a path of its own, such as a cable. While that
// path is interrupted, the link uses another one (a detour). The rank that dialled for the detour
// tries the link's own path again until it works.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/rare_line.h"
#include "rendezvous/connections/accepting.h"
#include "rendezvous/connections/dialing.h"
#include "rendezvous/meeting/repair_exchange.h"
#include "transport/tcp/link.h"
#include "transport/transport.h"

namespace mccl::rendezvous {

/// A link whose broken connections are replaced.
struct RepairedLink {
  int peer = -1;
  LinkKey key;
  std::uint64_t number = 0;   ///< Identifies the link at both ranks; see Handshake::link_number().
  Address there;              ///< The peer's end of the first connection.
  bool dialled_here = false;  ///< True if this rank dialled that address.
  /// This rank's end, if new connections must use the same address; otherwise empty.
  std::optional<Address> here;
  /// The first of the ranks that relay the link; -1 if the link is direct. Only the higher rank of
  /// the pair dials for a relayed link, because its dial determines the path.
  int relay = -1;

  /// True if a connection between these ends uses the link's own path. `from`: empty if the system
  /// chooses this rank's end.
  bool is_own_path(const std::optional<Address>& from, const Address& to) const {
    return relay >= 0 || (there.same_host(to) && (!here || !from || here->same_host(*from)));
  }
};

struct RepairOptions {
  Party self;
  /// Time after which a link ends whose broken connection has not been replaced (MCCL_LINK_RETRY).
  Clock::duration patience{};
  std::size_t socket_buffer_bytes = 0;
  Log log;
  /// Returns the address of the peer's listener, given the peer's end of a connection that the peer
  /// dialled. Empty if that address is not one of the peer's, because the network translates it.
  std::function<std::optional<Address>(int peer, const Address& end)> listener_of;
  /// Returns the other paths between the two ranks of a link that is not relayed.
  std::function<std::vector<Candidate>(const RepairedLink& about)> detours = {};
  /// Sets the candidates and the relay of a dial for a relayed link.
  std::function<void(DialRequest& request)> fill_in_relay = {};
  /// True if the process of a rank is known to have ended. Used for relayed links, because a relay
  /// accepts connections for a rank that has ended.
  std::function<bool(int rank)> has_ended = {};
  /// Prepares a new connection for the link.
  std::function<void(Socket& socket, const LinkKey& key)> prepare;
  std::function<void()> on_repaired;  ///< Called for every replaced connection; may be null.
};

/// Replaces the broken connections of this rank's links. Not thread-safe. No call blocks.
class Repairs final : public transport::tcp::Repairer {
 public:
  explicit Repairs(RepairOptions options) : options_(std::move(options)) {}

  /// Must be called once all ranks are connected. Before this call, and after stop(), a link ends
  /// when its connection breaks.
  void start() { is_running_ = true; }
  /// Closes all connections that are being made.
  void stop() noexcept;

  /// Repairs the link until forget() is called for it.
  void add(transport::tcp::TcpLink& link, RepairedLink about);

  bool begin(transport::tcp::TcpLink& link, const std::string& why) noexcept override;
  void suspect(transport::tcp::TcpLink& link) noexcept override;
  void forget(const transport::tcp::TcpLink& link) noexcept override;

  /// Called if nothing has arrived from the peer for a while. Dials for all links to the peer. A
  /// link keeps its connection if bytes arrive over that connection, or over the control
  /// connection, before there is a new one.
  void suspect_all(int peer) noexcept;

  /// The receipts that are due, for the relayed links; see transport::Receipt.
  std::vector<transport::Receipt> take_receipts();
  void hear(const transport::Receipt& receipt) const;

  /// Takes the connection by which a peer wants to continue a link.
  void accept(Newcomer newcomer);

  /// Does all work that is possible without blocking.
  void progress(Clock::time_point now);
  void watch(std::vector<pollfd>& descriptors) const;
  Clock::time_point next_deadline() const;

 private:
  /// Shortest pause before an attempt to return from a detour to a link's own path.
  static constexpr Clock::duration kBetweenReturns = std::chrono::seconds(1);

  struct Repair {
    std::string why;
    /// The listener of the peer or of the first relay; empty if this rank cannot dial, so that only
    /// the peer can.
    std::optional<Address> there;
    Clock::time_point since;
    Clock::time_point deadline;
    Clock::time_point next_dial;
    /// True if the repair began because nothing arrived from the peer.
    bool is_of_silent_peer = false;
    /// Number of bytes that had been received when the repair began: over this link and, if
    /// is_of_silent_peer, over the control connection to the peer.
    transport::tcp::StreamOffset received = 0;
    int failures = 0;                 ///< Number of exchanges that have failed.
    Clock::time_point exchange_ends;  ///< Time limit of `exchange`.
    std::optional<Dial> dial;
    std::optional<RepairExchange> exchange;
    /// True once the link continues over a new connection; bytes remain to be sent again.
    bool is_resumed = false;
    /// True if the link works over a detour, and this rank tries the link's own path again.
    bool is_return = false;
  };
  struct Entry {
    transport::tcp::TcpLink& link;
    RepairedLink about;
    transport::tcp::StreamOffset receipt = 0;  ///< The last receipt that take_receipts() returned.
    std::optional<Repair> repair = {};         ///< Empty while the connection works.
    /// Time at which to try the own path again; max unless this rank has dialled for a detour.
    Clock::time_point return_at = Clock::time_point::max();
    Clock::time_point returned_at = {};  ///< Time at which the link last returned to its own path.
    Clock::duration between_returns = kBetweenReturns;  ///< Pause before an attempt to return.
    RareLine warnings = {};                             ///< About replaced connections.
  };
  /// A connection for a link that this rank does not have. Closed once the answer is sent, or at
  /// `deadline`.
  struct Unknown {
    RepairExchange exchange;
    Clock::time_point deadline;
  };

  std::optional<Address> address_to_dial(const RepairedLink& about) const;
  bool open(const transport::tcp::TcpLink& link, const std::string& why,
            bool is_of_silent_peer = false) noexcept;
  transport::tcp::StreamOffset received(const Entry& entry, bool with_control) const;
  void begin_exchange(Entry& entry, Socket socket, RepairExchange::Role role);
  void end_exchange(Entry& entry, Clock::time_point now);
  void close(Entry& entry) noexcept;
  void begin_returns(Clock::time_point now);
  void advance(Entry& entry, Clock::time_point now);
  void advance_dial(Entry& entry, Clock::time_point now);
  void advance_exchange(Entry& entry, Clock::time_point now);
  void finish(Entry& entry, Clock::time_point now);
  void give_up(Entry& entry, const std::string& why, bool has_died);
  DialRequest request_for(const Entry& entry) const;

  RepairOptions options_;
  bool is_running_ = false;
  std::map<const transport::tcp::TcpLink*, Entry> links_;
  std::size_t open_ = 0;     ///< Number of links whose Entry::repair is set.
  std::size_t relayed_ = 0;  ///< Number of links that are relayed.
  Clock::time_point next_return_ = Clock::time_point::max();  ///< Earliest Entry::return_at.
  /// True if a link has been repaired since the last call of progress(). Bytes may then have
  /// arrived that poll(2) does not report.
  bool has_repaired_ = false;
  std::list<Unknown> unknown_;
  /// The receipts for relayed links that have ended. The peers wait for them before they leave.
  std::vector<transport::Receipt> last_receipts_;
};

}  // namespace mccl::rendezvous
