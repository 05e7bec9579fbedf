// The native backend: an engine that runs schedules over links.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/native/group.h"
#include "engine/engine.h"

namespace mccl::native {

class NativeBackend final : public Backend {
 public:
  explicit NativeBackend(const ContextOptions& options);
  ~NativeBackend() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::shared_ptr<Group> make_group(const std::string& name, const std::vector<int>& members,
                                    std::chrono::milliseconds timeout,
                                    const std::optional<Compression>& compression) override;
  /// Returns the costs of the group that was created first.
  Costs costs() const override;
  void shutdown() override { engine_->shutdown(); }
  void before_fork() noexcept override { engine_->before_fork(); }
  void after_fork_in_parent() noexcept override { engine_->after_fork_in_parent(); }
  void abandon_after_fork() noexcept override { engine_->abandon_after_fork(); }

 private:
  const int rank_;
  const int size_;
  const Compression compression_;  ///< Default for groups that set none.
  const std::string by_;           ///< Value of the setting `backend`, such as "auto" or "mpi".
  const std::shared_ptr<kernels::Unit> units_;
  const bool force_staging_;
  const std::shared_ptr<engine::Engine> engine_;
  GivePath give_path_;                         ///< Set before the backend is shared by threads.
  std::shared_ptr<engine::GroupState> first_;  ///< Set before the backend is shared by threads.
};

}  // namespace mccl::native
