// A process's membership in a job: its listener, its connections, its groups.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mccl/compression.h"
#include "mccl/config.h"
#include "mccl/export.h"
#include "mccl/group.h"
#include "mccl/metrics.h"
#include "mccl/store.h"

namespace mccl {

namespace rendezvous {
class Wiring;
}

/// Options of Context::create(). `rank` is from 0 to `size` - 1.
struct ContextOptions {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;  ///< May be null if `size` is 1.
  Config config = {};
  std::shared_ptr<Metrics> metrics;  ///< Created if null; pass one to share it between contexts.
  /// The cables of the job, if the settings name a hostfile. Discovered if null.
  std::shared_ptr<rendezvous::Wiring> wiring = nullptr;
};

/// Costs of a job's links and memory that the choice of algorithms assumes: measured when the job
/// started, set by settings, or assumed. Equal on all ranks.
struct Costs {
  /// Pairs of a name and a value in seconds, bytes or bytes per second, such as {"latency_s",
  /// 15e-6}.
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<int> nodes;  ///< The node of each rank; empty if no two ranks share memory.
};

/// A process's membership in a job. Owns one progress thread. Thread-safe. Contexts of one process
/// share nothing, so a process can hold many (the tests run eight ranks as eight threads).
class MCCL_API Context {
 public:
  /// Connects to all other ranks: blocks until every pair of ranks has authenticated each other.
  /// Throws InvalidArgument for wrong options, TimeoutError or PeerError if the ranks do not all
  /// connect within Config::connect_timeout.
  static std::shared_ptr<Context> create(const ContextOptions& options);
  /// Like create(), with rank, size and meeting point from the environment: `mccl launch`,
  /// torchrun, mpirun, srun, or MCCL_RANK, MCCL_WORLD_SIZE and MCCL_ROOT. The settings are those of
  /// the environment unless given. Throws InvalidArgument if the environment names no rank or size.
  static std::shared_ptr<Context> from_environment();
  static std::shared_ptr<Context> from_environment(Config settings,
                                                   std::shared_ptr<Metrics> metrics = nullptr);

  virtual ~Context() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const Config& config() const = 0;
  virtual std::shared_ptr<Metrics> metrics() const = 0;
  /// Costs for the group of all ranks. Costs that the ranks agree on are known after the first
  /// collective of that group.
  virtual Costs costs() const = 0;

  /// The group of all ranks. Like every group of the context, it ends with the context.
  virtual std::shared_ptr<Group> world() = 0;

  /// Creates the group of `members`: ranks of this context in the order of their new ranks, with
  /// this rank among them. All members pass the same members and the same `name`, which no other
  /// living group of the context has. Throws InvalidArgument otherwise. `timeout` is the default
  /// timeout of the group's calls; zero or negative means none. `compression` is the codec of sums
  /// that name none themselves, the same on all members; by default as the settings say.
  virtual std::shared_ptr<Group> group(const std::string& name, const std::vector<int>& members,
                                       std::chrono::milliseconds timeout,
                                       const std::optional<Compression>& compression = {}) = 0;

  /// Announces the departure to the peers and ends the progress thread; pending calls fail with
  /// AbortedError. The destructor does the same.
  virtual void shutdown() = 0;

  /// Call these three around fork(), on the thread that forks, such as from pthread_atfork().
  /// before_fork() blocks until no step is running, at most for the length of one step; calls stay
  /// pending.
  virtual void before_fork() noexcept = 0;
  virtual void after_fork_in_parent() noexcept = 0;
  /// Called in the child: closes its copies of the sockets and touches nothing else. Every later
  /// use in the child throws InvalidArgument. Without before_fork() the sockets stay open until the
  /// child ends.
  virtual void abandon_after_fork() noexcept = 0;
};

}  // namespace mccl
