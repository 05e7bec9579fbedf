// A group, which checks the arguments of each call and chooses what runs it: the engine, a device
// path or MPI.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backend/arguments.h"
#include "backend/direct/agreement.h"
#include "backend/direct/path.h"
#include "backend/staged/ordered_calls.h"
#include "base/coding.h"
#include "engine/engine.h"
#include "kernels/unit.h"
#include "mccl/group.h"

namespace mccl::native {

class NativeGroup;

/// Properties that all groups of a context share.
struct GroupSetup {
  /// Gives a new group a device path, or lets MPI carry out the group's calls. Null if the context
  /// uses neither. The second argument is the group's timeout.
  std::function<void(NativeGroup&, std::chrono::milliseconds)> give_path;
  /// Computes reductions instead of the host's kernels, on a GPU or with Accelerate (see units.h);
  /// null if the settings request neither.
  std::shared_ptr<kernels::Unit> unit;
  /// True if calls are staged even on memory that a Mac's GPU shares with the host.
  bool stages_always = false;
};

/// Calls on device memory run on the devices if the group has a path that supports them. Otherwise
/// they go through the group's queue of ordered calls, which copies the data to host memory and
/// back. Calls on host memory go to the engine immediately if no earlier call is still in the
/// queue. Thread-safe.
class NativeGroup final : public Group {
 public:
  NativeGroup(std::shared_ptr<engine::Engine> engine, std::shared_ptr<engine::GroupState> state);
  /// Also creates the engine's group. Must be called by std::make_shared, which allocates this
  /// object first. A failed allocation then leaves no group behind in the engine.
  NativeGroup(const std::shared_ptr<engine::Engine>& engine, const std::string& name,
              const std::vector<int>& members, std::chrono::milliseconds timeout,
              const Compression& compression)
      : NativeGroup(engine, engine->make_group(name, members, timeout, compression)) {}
  ~NativeGroup() override;

  /// Sets the properties that the context's groups share. Must be called before the first call.
  /// Groups that split() and shrink() make from this group use the same setup.
  void set_up(std::shared_ptr<const GroupSetup> setup);
  /// Sets the device path. Collectives that the path supports (see Path::way_for) use it, except in
  /// batches. Must be called before the first call.
  void use(std::shared_ptr<direct::Path> path) {
    path_ = std::move(path);
    state_->enqueued().reserve();
  }
  /// Sets the object through which the group warns that calls on GPU memory ignore its compression.
  /// Must be called before the first call.
  void use(std::shared_ptr<direct::Notices> notices) { notices_ = std::move(notices); }
  /// Lets MPI carry out the group's calls on host memory. All ranks of the group must call this;
  /// see mpi::make_carrier(). No-op for a group of one rank.
  void carry_by_mpi(std::chrono::milliseconds patience);

  const std::shared_ptr<engine::GroupState>& state() const { return state_; }
  int rank() const override { return state_->membership().rank.number(); }
  int size() const override { return state_->membership().size(); }
  const std::string& name() const override { return state_->membership().name; }

  // Defined in group_calls.cpp:
  Work all_reduce(ConstBuffer in, Buffer out, ReduceOp op, const CallOptions&) override;
  std::size_t bytes_to_sum(std::size_t count, DType dtype, ReduceOp op,
                           const CallOptions&) const override;
  Work broadcast(Buffer data, int root, const CallOptions&) override;
  Work reduce(ConstBuffer in, Buffer out, ReduceOp op, int root, const CallOptions&) override;
  Work all_gather(ConstBuffer in, Buffer out, const CallOptions&) override;
  Work all_gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                   const CallOptions&) override;
  Work gather(ConstBuffer in, Buffer out, int root, const CallOptions&) override;
  Work gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, int root,
               const CallOptions&) override;
  Work scatter(ConstBuffer in, Buffer out, int root, const CallOptions&) override;
  Work scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, int root,
                const CallOptions&) override;
  Work reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op, const CallOptions&) override;
  Work reduce_scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, ReduceOp op,
                       const CallOptions&) override;
  Work all_to_all(ConstBuffer in, Buffer out, const CallOptions&) override;
  Work all_to_allv(ConstBuffer in, std::span<const std::size_t> in_counts, Buffer out,
                   std::span<const std::size_t> out_counts, const CallOptions&) override;
  Work barrier(const CallOptions&) override;
  Work send(ConstBuffer data, int peer, std::uint32_t tag, const CallOptions&) override;
  Work recv(Buffer data, int peer, std::uint32_t tag, const CallOptions&) override;

  void reach_device_memory(Device device) override {
    if (path_) path_->reach_memory(device);
  }
  std::optional<device::Word> last_on_device() const override;
  bool has_come_to(device::Word number) const override { return path_->queue()->ended(number); }
  void split_path(Group* child, int color, int key) override;
  void begin_coalescing() override;
  Work end_coalescing() override;
  std::shared_ptr<Group> split(int color, int key) override;
  std::shared_ptr<Group> shrink(std::optional<std::chrono::milliseconds> timeout) override;
  void abort(const std::string& reason) override {
    if (path_) path_->abort();
    engine_->abort(state_, reason);
  }
  std::string failure() const override;

  // The following functions are used by OrderedCalls.
  /// Starts a call on host memory.
  Work start(const Request& request, const CallOptions& options);
  /// True if a call for `request` may start before all of its input has arrived (see
  /// engine::Conveyor). False for premul_sum, whose factor is applied to the whole input before the
  /// schedule starts.
  bool begins_early(const Request& request) const {
    return is_collective(request.call) && request.call.kind != ReduceKind::premul_sum;
  }
  void begin_batch();
  Work end_batch();
  /// True if the calling thread is between begin_batch() and end_batch().
  bool batch_is_open() const;
  std::chrono::milliseconds timeout_of(const CallOptions& options) const {
    return options.timeout.value_or(state_->timeout());
  }
  /// True if the group has failed, so that each new call fails immediately.
  bool has_failed() const { return state_->failed(); }

 private:
  using OperationPtr = std::shared_ptr<engine::Operation>;
  using Counts = std::span<const std::size_t>;

  // Defined in group_calls.cpp:
  Arguments arguments() const { return {rank(), size()}; }
  /// If `on_device` is not null, a device path that runs the call uses it instead of `request`.
  Work begin(const Request& request, const CallOptions& options,
             const Request* on_device = nullptr);
  Work begin_sum(const Request& request, const CallOptions& options);
  direct::Path* way_for(const Request& request, const CallOptions& options);
  void refuse_capture(const Request& request, const CallOptions& options) const;
  Work begin_directly(direct::Path& way, const Request& request, const CallOptions& options);
  staged::OrderedCalls& ordered_calls();

  /// Returns the codec that the call uses on the wire; empty if the data are sent exactly.
  Coding coding_of(const Request& request, const CallOptions& options) const;
  bool is_faster(const Request& request, const Coding& coding) const;
  void warn_of_loss(const Coding& coding, const CallOptions& options);
  OperationPtr operation(engine::Task task, const CallOptions& options) const;
  void run_at_once(std::vector<OperationPtr>& operations, std::vector<OperationPtr>& ended);
  std::shared_ptr<NativeGroup> make_part(int color, std::vector<int> chosen);
  std::shared_ptr<NativeGroup> make_child(const std::string& name, const std::vector<int>& members);

  const std::shared_ptr<engine::Engine> engine_;
  const std::shared_ptr<engine::GroupState> state_;
  std::shared_ptr<const GroupSetup> setup_ = std::make_shared<GroupSetup>();
  const engine::Carrier* carrier_ = nullptr;  ///< Owned by `state_`. Null if calls do not use MPI.
  std::shared_ptr<direct::Path> path_;
  std::shared_ptr<direct::Notices> notices_;
  std::once_flag path_is_watched_;

  std::mutex ordered_mutex_;
  std::shared_ptr<staged::OrderedCalls> ordered_;  // guarded by ordered_mutex_
  /// Copy of `ordered_` that can be read without the lock.
  std::atomic<staged::OrderedCalls*> ordered_if_any_{nullptr};

  std::atomic<int> coalescing_threads_{0};
  std::atomic<bool> warned_{false};
  mutable std::mutex mutex_;
  /// Cached decisions of is_faster(), by collective and count. Guarded by mutex_.
  mutable std::map<std::pair<Collective, std::size_t>, bool> faster_;
  std::map<std::thread::id, std::vector<OperationPtr>> coalescing_;  // guarded by mutex_
  int splits_ = 0;                                                   // guarded by mutex_
};

}  // namespace mccl::native
