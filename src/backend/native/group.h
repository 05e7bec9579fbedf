// The native backend: schedules over links.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "mccl/group.h"

namespace mccl::native {

class Shares;

/// Checks arguments and hands operations to the engine. Thread-safe.
class NativeGroup final : public Group {
 public:
  NativeGroup(std::shared_ptr<engine::Engine> engine, std::shared_ptr<engine::GroupState> state);
  ~NativeGroup() override;

  int rank() const override { return state_->membership().rank.number(); }
  int size() const override { return state_->membership().size(); }
  const std::string& name() const override { return state_->membership().name; }

  Work all_reduce(ConstBuffer in, Buffer out, ReduceOp op, const CallOptions&) override;
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

  void begin_coalescing() override;
  Work end_coalescing() override;
  std::shared_ptr<Group> split(int color, int key) override;
  void abort(const std::string& reason) override { engine_->abort(state_, reason); }
  std::string failure() const override;

 private:
  using OperationPtr = std::shared_ptr<engine::Operation>;

  OperationPtr operation(engine::Task task, const CallOptions& options) const;
  // The tasks of calls that have an even and an uneven form.
  engine::Task gather_to_all(ConstBuffer in, Buffer out, const Shares& shares) const;
  engine::Task gather_to(ConstBuffer in, Buffer out, const Shares& shares, int root) const;
  engine::Task scatter_from(ConstBuffer in, Buffer out, const Shares& shares, int root) const;
  engine::Task reduce_to_parts(ConstBuffer in, Buffer out, const Shares& shares, ReduceOp op) const;
  engine::Task exchange(ConstBuffer in, const Shares& given, Buffer out, const Shares& taken) const;
  std::chrono::milliseconds timeout_of(const CallOptions& options) const;
  Work submit(engine::Task&& task, const CallOptions& options);

  const std::shared_ptr<engine::Engine> engine_;
  const std::shared_ptr<engine::GroupState> state_;
  std::atomic<int> coalescing_threads_{0};
  std::mutex mutex_;
  std::map<std::thread::id, std::vector<OperationPtr>> coalescing_;  // guarded by mutex_
  int splits_ = 0;                                                   // guarded by mutex_
};

}  // namespace mccl::native
