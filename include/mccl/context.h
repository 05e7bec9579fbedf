// Context: a process's membership in a job, with its listener, connections and groups.
#pragma once

#include <chrono>
#include <cstddef>
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
  /// Metrics in which the context records its calls. May be shared between contexts. If null, the
  /// context creates its own.
  std::shared_ptr<Metrics> metrics;
  /// The cables of the job, as returned by rendezvous::join(). If null and the settings name a
  /// hostfile, create() discovers them.
  std::shared_ptr<rendezvous::Wiring> wiring = nullptr;
};

/// Costs of a job's links and memory, which determine the choice of algorithms. Each cost was
/// measured when the job started, was set by the user, or is a built-in default. Equal on all
/// ranks.
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
  /// Creates a context whose rank, size and meeting point (the address of rank 0) are read from
  /// environment variables. `mccl launch`, torchrun, mpirun and srun set them; otherwise set
  /// MCCL_RANK, MCCL_WORLD_SIZE and MCCL_ROOT. Without `settings`, the settings are read from the
  /// environment, too. Throws InvalidArgument if the environment contains no rank or size.
  static std::shared_ptr<Context> from_environment();
  static std::shared_ptr<Context> from_environment(Config settings,
                                                   std::shared_ptr<Metrics> metrics = nullptr);

  virtual ~Context() = default;

  virtual int rank() const = 0;              ///< This process's rank, from 0 to size() - 1.
  virtual int size() const = 0;              ///< Number of ranks of the job.
  virtual const Config& config() const = 0;  ///< The settings in force.
  /// The metrics of this context's calls.
  virtual std::shared_ptr<Metrics> metrics() const = 0;
  /// The flight record as JSON: the context's last 4096 calls, and its groups. docs/inspect.md
  /// describes the fields. Does not wait for pending calls.
  virtual std::string flight_record() const = 0;
  /// Costs for the group of all ranks. `window_bytes` and `nodes` are final only after the first
  /// collective of that group, in which the ranks agree on their shared memory.
  virtual Costs costs() const = 0;

  /// The group of all ranks. Like every group of the context, it ends with the context.
  virtual std::shared_ptr<Group> world() = 0;

  /// Creates a group. `members` lists ranks of this context in the order of their ranks in the
  /// group, and must contain this rank. All members must pass the same list, `name` and
  /// `compression`. The name must be unique among the living groups of the context. Throws
  /// InvalidArgument for an invalid list or name. `timeout` is the default timeout of the group's
  /// calls; zero or negative means none. `compression` is the codec of sums whose CallOptions do
  /// not set one; by default the setting `compression`.
  virtual std::shared_ptr<Group> group(const std::string& name, const std::vector<int>& members,
                                       std::chrono::milliseconds timeout,
                                       const std::optional<Compression>& compression = {}) = 0;

  /// Allocates `bytes` bytes for the buffers of collectives, at a page, with undefined content. The
  /// other ranks of this host can read this memory, so calls whose buffers lie in it, and are
  /// large, need not copy the data for them first. Calls work with any memory; such buffers make
  /// them faster. The memory is freed with the last reference, on any thread, and may outlive the
  /// context. Call it in the process that created the context, not in a fork of it. Without other
  /// ranks on this host, on macOS, and with the setting shared_buffers=false, the memory is
  /// ordinary memory. Throws Error if there is not enough memory; if a container's limit is lower
  /// than the machine's memory, the system may end the process instead.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;

  /// Announces to the peers that this rank is leaving, and stops the progress thread. Pending calls
  /// fail with AbortedError. The destructor does the same.
  virtual void shutdown() = 0;

  /// Leaves the job, meets all its ranks again, and returns the new context. Brings processes into
  /// the job that were started in place of dead ranks. Every living rank must call it; the new
  /// processes create a context as usual, and rank 0 may be among them. Shuts this context down, so
  /// its groups and their pending calls fail. Blocks until all ranks have met, for at most
  /// `timeout`, and up to 5 s more on rank 0, which reports to the others why it gives up. If
  /// `timeout` is 0, Config::connect_timeout applies; otherwise the new context has `timeout` as
  /// its connect_timeout. Throws InvalidArgument if this context was shut down before, or if the
  /// ranks met by MPI, which cannot replace processes; otherwise the errors of create(). If it
  /// throws after the shutdown, create a context as a new process does, in order to try again.
  virtual std::shared_ptr<Context> reconfigure(std::chrono::milliseconds timeout = {}) = 0;

  /// Call before_fork() before fork(), and after_fork_in_parent() and abandon_after_fork() after
  /// it, all on the thread that forks, for instance in handlers that pthread_atfork() registers.
  /// before_fork() blocks until the progress thread has finished its current step. Calls stay
  /// pending.
  virtual void before_fork() noexcept = 0;
  /// Call this in the parent, after fork().
  virtual void after_fork_in_parent() noexcept = 0;
  /// Call this in the child, after fork(). It closes the child's copies of the sockets and touches
  /// nothing else. Every later use of the context in the child throws InvalidArgument. If
  /// before_fork() was not called, the copies stay open until the child ends.
  virtual void abandon_after_fork() noexcept = 0;
};

}  // namespace mccl
