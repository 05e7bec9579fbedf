// The groups of the native backend, which run schedules over links.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/checked_group.h"
#include "engine/engine.h"
#include "kernels/unit.h"

namespace mccl::native {

class NativeGroup;
/// Sets a group's path or carrier, which makes its calls in place of the engine's links. The second
/// argument is the group's timeout.
using GivePath = std::function<void(NativeGroup&, std::chrono::milliseconds)>;

/// Passes operations to the engine. Thread-safe.
class NativeGroup final : public CheckedGroup {
 public:
  NativeGroup(std::shared_ptr<engine::Engine> engine, std::shared_ptr<engine::GroupState> state);
  /// Also creates the engine's group. Must be called by std::make_shared, which allocates this
  /// object first. A failed allocation then leaves no group behind in the engine.
  NativeGroup(const std::shared_ptr<engine::Engine>& engine, const std::string& name,
              const std::vector<int>& members, std::chrono::milliseconds timeout,
              const Compression& compression)
      : NativeGroup(engine, engine->make_group(name, members, timeout, compression)) {}
  ~NativeGroup() override;

  /// Sets the path, also for groups that this one is split into. Must be called before the first
  /// call.
  void get_path(const GivePath& give_path);
  /// Sets the units that compute reductions in place of the host's kernels, also for groups that
  /// this one is split into.
  void get_units(std::shared_ptr<kernels::Unit> units) { units_ = std::move(units); }

  /// Lets MPI carry out the group's calls on host memory. All ranks of the group must call this;
  /// see mpi::make_path(). No-op for a group of one rank.
  void carry_by_mpi(std::chrono::milliseconds patience);

  const std::shared_ptr<engine::GroupState>& state() const { return state_; }
  int rank() const override { return state_->membership().rank.number(); }
  int size() const override { return state_->membership().size(); }
  const std::string& name() const override { return state_->membership().name; }

  std::shared_ptr<Group> split(int color, int key) override;
  std::shared_ptr<Group> shrink(std::optional<std::chrono::milliseconds> timeout) override;
  void abort(const std::string& reason) override {
    abort_path();
    engine_->abort(state_, reason);
  }
  std::string failure() const override;

 protected:
  Work start(const Request& request, const CallOptions& options) override;
  void begin_batch() override;
  Work end_batch() override;
  bool batch_is_open() const override;
  bool has_failed() const override { return state_->failed(); }
  std::chrono::milliseconds timeout_of(const CallOptions& options) const override;
  Coding coding_of(const Request& request, const CallOptions& options) const override;
  bool begins_early(const Request& request) const override;
  void watch_failure(const std::function<void()>& told) override;

 private:
  std::shared_ptr<NativeGroup> make_part(int color, std::vector<int> chosen);
  std::shared_ptr<NativeGroup> make_child(const std::string& name, const std::vector<int>& members);
  using OperationPtr = std::shared_ptr<engine::Operation>;

  bool is_faster(const Request& request, const Coding& coding) const;
  void warn_of_loss(const Coding& coding, const CallOptions& options);
  OperationPtr operation(engine::Task task, const CallOptions& options) const;
  void run_at_once(std::vector<OperationPtr>& operations, std::vector<OperationPtr>& ended);

  const std::shared_ptr<engine::Engine> engine_;
  const std::shared_ptr<engine::GroupState> state_;
  GivePath give_path_;
  const engine::Carrier* carrier_ = nullptr;  ///< Owned by `state_`. Null if calls go over links.
  std::shared_ptr<kernels::Unit> units_;
  std::atomic<int> coalescing_threads_{0};
  std::atomic<bool> warned_{false};
  mutable std::mutex mutex_;
  /// Cached decisions of is_faster(), by collective and count. Guarded by mutex_.
  mutable std::map<std::pair<Collective, std::size_t>, bool> faster_;
  std::map<std::thread::id, std::vector<OperationPtr>> coalescing_;  // guarded by mutex_
  int splits_ = 0;                                                   // guarded by mutex_
};

}  // namespace mccl::native
