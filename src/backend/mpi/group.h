// The mpi backend: every call is one of MPI's.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/checked_group.h"
#include "backend/mpi/engine.h"

namespace mccl::mpi {

/// Hands calls to the engine. Thread-safe.
class MpiGroup final : public CheckedGroup {
 public:
  /// `make` makes a group of ranks of the context; it may fail when the backend has gone.
  using Make = std::function<std::shared_ptr<Group>(
      const std::string& name, const std::vector<int>& members, std::chrono::milliseconds timeout)>;

  MpiGroup(std::shared_ptr<Engine> engine, std::shared_ptr<GroupState> state, Make make);
  ~MpiGroup() override;

  int rank() const override { return state_->place.rank; }
  int size() const override { return state_->place.size; }
  const std::string& name() const override { return state_->name; }

  std::shared_ptr<Group> split(int color, int key) override;
  void abort(const std::string& reason) override { engine_->abort(state_, reason); }
  std::string failure() const override;

 protected:
  Work start(const Request& request, const CallOptions& options) override;
  void begin_batch() override;
  Work end_batch() override;
  bool batch_is_open() const override;
  bool has_failed() const override { return state_->failed(); }
  std::chrono::milliseconds timeout_of(const CallOptions& options) const override;
  Coding coding_of(const Request&, const CallOptions&) const override { return {}; }

 private:
  std::shared_ptr<Call> call_of(const Request& request, const CallOptions& options) const;

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<GroupState> state_;
  const Make make_;
  std::atomic<int> coalescing_threads_{0};
  mutable std::mutex mutex_;
  std::map<std::thread::id, std::vector<std::shared_ptr<Call>>> coalescing_;  // guarded by mutex_
  int splits_ = 0;                                                            // guarded by mutex_
};

}  // namespace mccl::mpi
