// Lets ranks reach each other where no network joins all of them. They find the cables that exist
// and agree on them before they meet (discovery.h). From then on each rank passes on connections of
// others (relaying.h), so that every rank can connect and prove itself to every other, end to end.
//
// A rank has one listener for all this, and a thread that serves it whatever else the process does.
//
// Locks: one, for everything. The thread holds it except while it sleeps.
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
#include "base/wake_pipe.h"
#include "mccl/config.h"
#include "mccl/metrics.h"
#include "rendezvous/accepting.h"
#include "rendezvous/cabling/discovery.h"
#include "rendezvous/cabling/hostfile.h"
#include "rendezvous/cabling/relaying.h"
#include "transport/tcp/inlet.h"

namespace mccl::rendezvous {

/// What a connection is for at the rank that it leads to.
enum class Destination : std::uint8_t { links, store };

struct WiringOptions {
  int rank = 0;
  AddressTable table;
  std::string job_key;
  Log log;
  Clock::time_point deadline;
  Clock::duration liveness{};
  /// How long a rank may take to receive what another one has written that has gone, where both are
  /// joined through this one.
  Clock::duration patience = std::chrono::seconds(60);
  std::size_t buffer_bytes = 0;
  std::string congestion_control = {};
  std::function<void()> on_refused = {};  ///< Called for every refused connection.
  /// Which ranks count as reachable; null for all. For tests on one machine, where all ranks reach
  /// each other.
  std::function<bool(int rank)> may_reach = {};
};

/// Thread-safe.
class Wiring {
 public:
  /// Listens and begins to look for the others. Throws InvalidArgument.
  explicit Wiring(const WiringOptions& options);
  /// Leaves.
  ~Wiring();
  Wiring(const Wiring&) = delete;
  Wiring& operator=(const Wiring&) = delete;

  /// Blocks until all ranks have agreed on the cables. Throws TimeoutError, which names the ranks
  /// that cannot be reached, PeerError and CorruptionError.
  void wait();

  // Once they have:
  const Cabling& cabling() const { return cabling_; }
  /// Of each rail to a neighbour: the cables in the order of Cabling::between, and again those that
  /// are to have several.
  const std::vector<CableEnds>& ends(int peer) const {
    return ends_[static_cast<std::size_t>(peer)];
  }
  /// The addresses of this rank's ends of its cables, without ports.
  std::vector<std::string> own_ends() const;
  /// How to connect to what is at another rank, whether a cable leads there or not: the addresses
  /// of the first rank on the way, and what that is told.
  struct Way {
    std::vector<Candidate> candidates;
    FirstHop first;
  };
  Way way_to(int rank, Destination destination) const;

  /// The listener for connections to this rank. May be called once for each destination.
  transport::tcp::Listener inlet(Destination destination);

  /// The cables of the job that have been cut since the last call.
  std::vector<CutCable> take_cut();
  /// While the ranks meet: throws PeerError once there has been one, or a rank has died.
  void check() const;
  /// All ranks have met: from now on they may leave.
  void everyone_is_here();

  /// Waits until no other rank's connections pass through here, and ends. Those end when either of
  /// their ranks leaves or dies, and within WiringOptions::patience from then on. This rank must
  /// hold no connection of its own any more.
  void leave();

  /// As Backend's.
  void before_fork() noexcept { mutex_.lock(); }
  void after_fork_in_parent() noexcept { mutex_.unlock(); }
  void abandon_after_fork() noexcept;

 private:
  struct Listening;
  Wiring(WiringOptions options, Listening listening);

  void run();
  void serve(Clock::time_point now);
  void listen_at_own_ends();
  void hand_over_or_pass_on(Newcomer& newcomer);
  void take(Newcomer& newcomer);
  void agreed();
  std::vector<CableEnds> rails_over(const std::vector<CableEnds>& cables, int peer) const;
  /// Until a cable is given up: less than an interval of liveness, so that what a cut cable brings
  /// about is told after it.
  Clock::duration silence() const { return options_.liveness * (kBeats - 1) / kBeats; }
  Clock::time_point sleep_until(std::vector<pollfd>& descriptors) const;

  /// In an interval of liveness.
  static constexpr int kBeats = 5;

  const WiringOptions options_;
  const Party self_;
  WakePipe wake_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const std::uint16_t port_;                       ///< At every end of a cable.
  std::vector<transport::tcp::Address> heard_at_;  ///< Where `acceptor_` listens.
  Acceptor acceptor_;
  Discovery discovery_;
  Relaying relaying_;
  std::map<Destination, transport::tcp::Inlet> inlets_;
  std::vector<Newcomer> early_;  ///< For others, before the ranks have agreed.
  std::vector<CutCable> cut_;
  std::optional<CutCable> first_cut_;
  Clock::time_point next_beat_{};
  std::exception_ptr trouble_;
  bool has_agreed_ = false;
  bool are_meeting_ = true;
  bool leaves_ = false;
  bool is_over_ = false;
  bool abandoned_ = false;
  // Not changed once it has agreed:
  Cabling cabling_;
  std::vector<std::vector<CableEnds>> ends_;  ///< By rank.
  std::vector<std::uint16_t> ports_;          ///< By rank.

  std::thread thread_;
};

/// Null where the settings name no hostfile, or all ranks reach each other anyway.
/// Waits as long as the settings let it, and throws as Wiring::wait. Strangers are counted in
/// `metrics`.
std::shared_ptr<Wiring> wire(int rank, int size, const Config& config,
                             const std::shared_ptr<Metrics>& metrics);

}  // namespace mccl::rendezvous
