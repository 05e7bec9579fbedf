// Lets all ranks connect even if no network joins all of them. First, the ranks find the cables
// that exist and agree on them (discovery.h). Then each rank relays connections of other ranks
// (relaying.h), so that every rank can connect to every other rank. The ranks at the two ends of a
// relayed connection prove their identity to each other.
//
// A separate thread serves the relayed connections and the trunks (link_state.h), so that relaying
// continues while the other threads of the process are busy.
//
// Locks: one mutex guards all members. The thread holds it except while it sleeps.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/cabling.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rare_line.h"
#include "base/signal_watch.h"
#include "base/wake_pipe.h"
#include "mccl/config.h"
#include "mccl/metrics.h"
#include "rendezvous/cabling/discovery.h"
#include "rendezvous/cabling/hostfile.h"
#include "rendezvous/cabling/relaying.h"
#include "rendezvous/connections/accepting.h"

namespace mccl::rendezvous {

/// Use of a relayed connection at its final rank: a link, or the store.
enum class Destination : std::uint8_t { links, store };

struct WiringOptions {
  int rank = 0;
  AddressTable table;
  /// This rank's settings. MCCL_CONNECT_TIMEOUT also limits how long the other rank of a relayed
  /// connection may receive the remaining bytes, once one rank has closed it or died. The
  /// encryption settings apply to the messages about cables. The ranks at the ends of a relayed
  /// connection encrypt it.
  Config config;
  Clock::time_point deadline;
  std::function<void()> on_refused = {};  ///< Called for every refused connection.
  /// Returns whether the rank counts as reachable; null if all ranks do. Used by tests.
  std::function<bool(int rank)> may_reach = {};
};

/// The listener and the trunks of one rank in a job that connects along cables, and the connections
/// that the rank relays. Thread-safe.
class Wiring {
 public:
  /// Starts to listen and to look for the other ranks. Throws InvalidArgument if this rank cannot
  /// listen.
  explicit Wiring(WiringOptions options);
  /// Calls leave(), except in the child of a fork.
  ~Wiring();
  Wiring(const Wiring&) = delete;
  Wiring& operator=(const Wiring&) = delete;

  /// Blocks until all ranks have agreed on the cables. Throws TimeoutError if ranks cannot be
  /// reached (the message lists them), PeerError if a rank has died, or CorruptionError if a rank
  /// violates the protocol.
  void wait();

  // The following are valid once wait() has returned:
  const Cabling& cabling() const { return cabling_; }
  /// One entry per rail (parallel connection) to a neighbour: the cables in the order of
  /// Cabling::between, followed by repetitions of the cables that get several connections.
  const std::vector<CableEnds>& ends(int peer) const {
    return ends_[static_cast<std::size_t>(peer)];
  }
  /// The addresses of this rank's ends of its cables, without ports.
  std::vector<std::string> own_ends() const;
  /// Path to another rank: the addresses of the first rank on the path, and its handshake.
  struct Way {
    std::vector<Candidate> candidates;
    FirstHop first;
  };
  Way way_to(int rank, Destination destination) const;

  /// Returns the listener for relayed connections whose final rank is this rank. May be called once
  /// per destination.
  Listener inlet(Destination destination);

  /// True if the process of the rank is known to have ended.
  bool has_ended(int rank) const {
    const std::lock_guard lock(mutex_);
    return discovery_.link_state().has_ended(rank);
  }
  /// Returns the cables of the job whose cut has become known to this rank since the last call.
  std::vector<CutCable> take_cut();
  /// Throws PeerError if a cable has been cut or, before everyone_is_here() is called, a rank has
  /// died. Must be called repeatedly while the ranks connect.
  void check() const;
  /// Must be called once all ranks are connected. A rank that ends later does not count as dead.
  void everyone_is_here();

  /// Blocks until this rank relays no more connections, and then closes its listener and its
  /// trunks. The caller must first close this rank's own connections, because the ranks that relay
  /// them wait in the same way. A signal that `signals` has noticed ends the wait.
  void leave(const SignalWatch& signals = SignalWatch());

  /// Must be called before a fork, and then after_fork_in_parent() and, in the child,
  /// abandon_after_fork(). The mutex is locked meanwhile, so that the child's state is consistent.
  void before_fork() noexcept { mutex_.lock(); }
  void after_fork_in_parent() noexcept { mutex_.unlock(); }
  void abandon_after_fork() noexcept;

 private:
  std::uint16_t listen();
  void listen_at(Listener listener);
  void close() noexcept;
  void run();
  void serve(Clock::time_point now);
  void watch_cables(Clock::time_point now);
  void listen_at_own_ends();
  /// Keeps a connection to relay until the ranks have agreed, but at most kMostRelayed of a peer.
  void wait_for_agreement(Newcomer& newcomer);
  void hand_over_or_pass_on(Newcomer& newcomer);
  void take(Newcomer& newcomer, Clock::time_point now);
  void agreed();
  std::vector<CableEnds> rails_over(const std::vector<CableEnds>& cables, int peer) const;
  /// Time without messages after which a cable counts as cut. It is shorter than the liveness
  /// interval, so that the cut is reported before the failures that it causes.
  Clock::duration silence() const { return liveness_ * (kBeats - 3) / kBeats; }

  /// Number of "alive" messages that this rank sends along each cable per liveness interval.
  static constexpr int kBeats = 40;

  const WiringOptions options_;
  const Log log_;
  RareLine unexpected_;  // warnings about connections, of one kind each
  RareLine too_early_;
  RareLine no_destination_;
  const Clock::duration liveness_;
  const std::size_t buffer_bytes_;
  const Party self_;
  WakePipe wake_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Acceptor acceptor_;
  std::vector<Address> heard_at_;  ///< Addresses at which `acceptor_` listens.
  const std::uint16_t port_;       ///< Port at which this rank is reached along any of its cables.
  Discovery discovery_;
  Relaying relaying_;
  std::map<Destination, transport::tcp::Inlet> inlets_;
  std::vector<Newcomer> early_;  ///< Connections to relay that arrived before the ranks agreed.
  std::vector<CutCable> cut_;
  std::optional<CutCable> first_cut_;
  Clock::time_point next_beat_{};
  std::exception_ptr trouble_;
  bool has_agreed_ = false;
  bool are_meeting_ = true;
  bool leaves_ = false;
  bool is_over_ = false;
  bool abandoned_ = false;
  // Constant once has_agreed_ is set:
  Cabling cabling_;
  std::vector<std::vector<CableEnds>> ends_;  ///< Cables to each rank; one entry per rail.
  std::vector<std::uint16_t> ports_;          ///< Listening port of each rank.

  std::unique_ptr<std::thread> thread_;
};

/// Makes a Wiring, and blocks until the ranks agree, at most for MCCL_CONNECT_TIMEOUT. Throws like
/// Wiring::wait(), and InvalidArgument for an unusable hostfile or a missing job key. Returns null
/// if no hostfile is set, or if all ranks reach each other directly. `metrics` may be null.
std::shared_ptr<Wiring> wire(int rank, int size, const Config& config,
                             const std::shared_ptr<Metrics>& metrics);

}  // namespace mccl::rendezvous
