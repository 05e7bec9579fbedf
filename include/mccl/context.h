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

struct ContextOptions {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;  ///< Not needed when size is 1.
  Config config = {};
  std::shared_ptr<Metrics> metrics;  ///< Made when null; give one to share it between contexts.
  /// The cables of the job, where the settings name a hostfile. Found when null.
  std::shared_ptr<rendezvous::Wiring> wiring = nullptr;
};

/// What the choice of algorithms assumes a job's links and memory to cost: measured when the job
/// started, given by settings, or assumed. Equal on all ranks.
struct Costs {
  /// By name, in seconds, bytes and bytes per second; such as {"latency_s", 15e-6}.
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<int> nodes;  ///< The node of each rank; empty when no two share memory.
};

/// Owns one progress thread. Thread-safe. Nothing in it is shared with other contexts of the
/// process, so that a process can hold many (the tests run eight ranks as eight threads).
class MCCL_API Context {
 public:
  /// Meets all other ranks: blocks until every pair has proved itself to each other.
  static std::shared_ptr<Context> create(const ContextOptions& options);
  /// The same where the environment tells rank, size and meeting point: `mccl launch`, torchrun,
  /// mpirun, srun, or MCCL_RANK, MCCL_WORLD_SIZE and MCCL_ROOT. Settings are the environment's too,
  /// unless given.
  static std::shared_ptr<Context> from_environment();
  static std::shared_ptr<Context> from_environment(Config settings,
                                                   std::shared_ptr<Metrics> metrics = nullptr);

  virtual ~Context() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const Config& config() const = 0;
  virtual std::shared_ptr<Metrics> metrics() const = 0;
  /// Of all ranks' group; what it shares is known after its first collective.
  virtual Costs costs() const = 0;

  /// All ranks. Like every group of the context, it ends with it.
  virtual std::shared_ptr<Group> world() = 0;

  /// The group of `members` (ranks of this context, in the order of their new ranks; this rank
  /// among them). All members pass the same members and the same `name`, which no other living
  /// group of the context has.
  /// `compression`: of its sums that say nothing of it, the same on all members; by default as the
  /// settings say.
  virtual std::shared_ptr<Group> group(const std::string& name, const std::vector<int>& members,
                                       std::chrono::milliseconds timeout,
                                       const std::optional<Compression>& compression = {}) = 0;

  /// Says goodbye to the peers and ends the progress thread; pending calls fail. The destructor
  /// does it too.
  virtual void shutdown() = 0;

  /// Around fork(), all three on the thread that forks, such as by pthread_atfork(). before_fork()
  /// waits until nothing is under way, which takes as long as the step that runs; calls stay
  /// pending.
  virtual void before_fork() noexcept = 0;
  virtual void after_fork_in_parent() noexcept = 0;
  /// For the child: closes its copies of the sockets, touches nothing else. Every later use in the
  /// child throws. Without before_fork() the sockets stay open until the child ends.
  virtual void abandon_after_fork() noexcept = 0;
};

}  // namespace mccl
