// The torch.distributed backend, which passes torch's calls to one group of MCCL.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ended_work.h"
#include "mccl/context.h"
#include "mccl/group.h"
#include "mps.h"
#include "process.h"
#include "stream_end.h"
#include "tensors.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "work.h"

namespace mccl_torch {

inline constexpr const char* kBackendName = "mccl";

struct GroupRequest;

/// The parts from which a backend is constructed. `members` are the group's ranks in the context's
/// numbering; `global_ranks` are the same ranks in torch's numbering.
struct BackendParts {
  std::shared_ptr<mccl::Context> context;
  std::shared_ptr<mccl::Group> group;
  std::vector<int> members;
  std::vector<std::uint64_t> global_ranks;
  std::chrono::milliseconds timeout;
  std::optional<mccl::Compression> compression = {};  ///< If empty, the context's settings apply.
};

/// Returns topk with `ratio`; std::nullopt if there is no ratio.
inline std::optional<mccl::Compression> topk_of(std::optional<double> ratio) {
  if (!ratio) return std::nullopt;
  return mccl::Compression{mccl::Codec::topk, *ratio};
}

/// Addresses of the two functions, as integers, with which a torch.cuda.MemPool allocates and frees
/// memory. The memory comes from the engine's allocator, so other ranks' GPUs can access it.
std::pair<std::uint64_t, std::uint64_t> memory_functions();

class ProcessGroupMCCL final : public c10d::Backend {
 public:
  struct Options final : c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
        : c10d::Backend::Options(kBackendName, timeout) {}
    /// Values that replace the settings with the same names; if empty, the setting applies.
    std::optional<std::string> compression;
    std::optional<double> topk_ratio;
  };

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;
  using Splits = std::vector<std::int64_t>;

  explicit ProcessGroupMCCL(BackendParts membership);
  /// Makes a group without members. Calls fail until reconfigure() has returned.
  explicit ProcessGroupMCCL(GroupRequest request);
  ~ProcessGroupMCCL() override;

  const std::string getBackendName() const override { return kBackendName; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  /// The group's ranks, as the context numbers them.
  std::vector<int> members() const {
    const std::lock_guard lock(mutex_);
    return membership_.members;
  }
  /// all_reduce_keeping() and reduce_scatter_keeping() do the same as allreduce() and
  /// _reduce_scatter_base(). They also write this rank's rounding error to `left_out`, a tensor of
  /// the input's type and size. If a ratio is given, the sum uses topk with that ratio instead of
  /// the group's codec.
  using TopkRatio = std::optional<double>;
  WorkPtr all_reduce_keeping(const at::Tensor& tensor, const at::Tensor& left_out,
                             const c10d::ReduceOp& op, TopkRatio topk_ratio);
  WorkPtr reduce_scatter_keeping(const at::Tensor& output, const at::Tensor& input,
                                 const at::Tensor& left_out, const c10d::ReduceOp& op,
                                 TopkRatio topk_ratio);
  /// Makes an all_reduce without a Work. On a GPU, work that is enqueued in the caller's stream
  /// afterwards sees the result. On other devices, the call is done when this function returns.
  void all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op);
  /// Payload bytes of this rank's contribution to an all_reduce of the tensor.
  std::size_t bytes_to_sum(const at::Tensor& tensor, TopkRatio topk_ratio) const;
  /// Lets later calls use memory of the engine's allocator on this GPU in place. All ranks must
  /// call it.
  void reach_memory(c10::DeviceIndex index);
  /// True if allocateTensor() returns memory that other ranks access. torch passes a negative index
  /// for the CPU; DDP and FSDP2 then allocate their buffers with allocateTensor().
  bool supportsTensorAlloc(c10::DeviceIndex index) override;
  /// Allocates a tensor of `size` elements, on the CPU in memory that the other ranks of the host
  /// read (Context::allocate()), on a GPU in memory of the engine's allocator. Other GPUs can
  /// access the latter only after a later reach_memory().
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  bool supportsShrinking() const override { return true; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, Splits& output_splits,
                        Splits& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& opts) override;

  c10::intrusive_ptr<c10d::Backend> shrink(
      const std::vector<std::int64_t>& ranks_to_exclude, int shrink_flags = 0,
      const c10::intrusive_ptr<c10d::Backend::Options>& opts = nullptr) override;

#ifdef C10D_BACKEND_HAS_RECONFIGURE
  bool supportsReconfigure() const override { return reconfiguring_ != nullptr; }
  c10d::ReconfigureHandle get_reconfigure_handle() const override;
  /// Must not run while another thread uses the group. Blocks until all members have joined, or
  /// for `opts.timeout`. If it fails, the group has no members, and may be reconfigured again.
  WorkPtr reconfigure(const c10d::ReconfigureOptions& opts) override;
#endif

  void setSequenceNumberForGroup() override { sequence_ = 0; }
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }

  void abort() override;
  void shutdown() override;
  c10d::ErrorType getError() override;
  void registerOnCompletionHook(
      std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override;
  /// No-op, because every Work always records its duration.
  void enableCollectivesTiming() override {}

 private:
  struct Reconfiguring;
  using Batch = std::vector<c10::intrusive_ptr<WorkMCCL>>;

  /// Both are null if the group has no members.
  std::shared_ptr<mccl::Context> context() const {
    const std::lock_guard lock(mutex_);
    return membership_.context;
  }
  std::shared_ptr<mccl::Group> current_group() const {
    const std::lock_guard lock(mutex_);
    return membership_.group;
  }
  at::Tensor allocate_on_host(const char* call, long size, const at::TensorOptions& options);
  bool was_forked() const { return forks_so_far() != forks_; }
  /// The group; throws DistBackendError if it was shut down or if this process is a forked child.
  std::shared_ptr<mccl::Group> open_group(const char* call) const;
  /// Like open_group(). Also throws if an earlier call on a device has failed after it returned to
  /// its caller.
  std::shared_ptr<mccl::Group> group_for(const char* call) const {
    ledger_->raise_missed();
    return open_group(call);
  }
  mccl::CallOptions call_options(std::chrono::milliseconds timeout, bool async) const;
  std::size_t ranks() const { return static_cast<std::size_t>(size_); }
  void require_root(const char* call, std::int64_t root) const;

  /// Creates the Work, then calls `submit(group, options)`, which returns the engine's Work.
  template <typename Submit>
  WorkPtr issue(CallName name, TensorStaging staging, const Tensors& inputs, Tensors outputs,
                mccl::CallOptions options, Submit&& submit);

  /// Creates a Work that is done once all `parts` are done. If they succeed, `finish` runs before
  /// the Work is done.
  WorkPtr all_of(CallName name, const std::vector<WorkPtr>& parts, Tensors outputs,
                 std::function<void()> finish = {});
  WorkPtr sum_when_gathered(const std::vector<WorkPtr>& parts, const at::Tensor& tensor,
                            const at::Tensor& indices, const at::Tensor& values);
  bool in_batch();
  void add_to_batch(c10::intrusive_ptr<WorkMCCL> work) {
    const std::lock_guard lock(batches_mutex_);
    batches_[std::this_thread::get_id()].push_back(std::move(work));
  }
  /// Records that a call is about to begin on `device`, and creates the group's stream there.
  void note_device(c10::Device device);
  /// Sets the StreamEnd of a call on a GPU: the point for which streams can wait. It lies in the
  /// caller's stream if the caller waits immediately, else in a stream of MCCL.
  void end_on_device(WorkMCCL& work, bool caller_waits,
                     const std::vector<const WorkMCCL*>& parts = {});
  void split_on_devices(mccl::Group* child, int color, int key);
  c10::intrusive_ptr<c10d::Backend> make_child(
      const char* call, const std::string& name, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& opts,
      const std::function<void(mccl::Group&)>& prepare = nullptr);
  void finish_streams();
  /// Throws if the group has failed. A stream cannot detect a failure, so the call itself must
  /// throw.
  static void raise_if_failed(const mccl::Group& group, const mccl::Work& begun) {
    if (!group.failure().empty()) begun.wait();
  }
  /// Returns the name of work that devices have not finished for the group; null if there is none.
  /// `last` is the result of group.last_on_device().
  const char* unfinished(const mccl::Group& group, std::optional<std::uint32_t> last);
  void finish_calls_on_devices();
  void let_go();
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  void require_reconfigurable() const;
#endif
  void monitor_members(mccl::Group& group, std::chrono::milliseconds timeout, bool wait_all_ranks);
  void report_to_root(mccl::Group& group, std::chrono::milliseconds timeout);

  mutable std::mutex mutex_;  ///< Guards membership_ against shutdown; not held during calls.
  BackendParts membership_;
  const std::string name_;
  /// Value of forks_so_far() when the group was made. A forked child must not use the connections.
  const std::uint32_t forks_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<std::uint64_t> splits_{0};
  EndStreams end_streams_;
  std::mutex devices_mutex_;
  std::vector<c10::Device> devices_;  ///< Devices that calls have used. Guarded by devices_mutex_.
  std::shared_ptr<WorkLedger> ledger_ = std::make_shared<WorkLedger>();
  c10::intrusive_ptr<Options> options_;
  /// Null for a group that keeps its members.
  std::shared_ptr<Reconfiguring> reconfiguring_;

  std::mutex batches_mutex_;
  std::map<std::thread::id, Batch> batches_;
  std::atomic<int> open_batches_{0};
};

template <typename Submit>
ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::issue(CallName name, TensorStaging staging,
                                                  const Tensors& inputs, Tensors outputs,
                                                  mccl::CallOptions options, Submit&& submit) {
  const auto group = group_for(name.title);
  const bool counts = !c10d::isP2POp(name.type);
  const std::uint64_t sequence = counts ? ++sequence_ : sequence_.load();
  const bool batched = open_batches_ > 0 && in_batch();
  if (batched) options.caller_waits = false;
  const bool on_mps = staging.on_mps();
  std::optional<c10::Stream> stream;
  if (const auto device = staging.device()) {
    note_device(*device);
    stream = current_stream(*device);
    options.stream = handle_of(*stream);
    options.stream_may_go = may_go(*stream);
  }
  // True if neither a hook nor a profiler observes the call, and the host may have nothing left to
  // do once `submit` returns. In that case, an EndedWork suffices.
  const bool may_be_over = options.caller_waits && !on_mps && !staging.has_copies() &&
                           !ledger_->watched && !is_recorded();
  const auto started = std::chrono::steady_clock::now();
  c10::intrusive_ptr<WorkMCCL> work;
  const auto make_work = [&] {
    work = c10::make_intrusive<WorkMCCL>(rank_, name, sequence, std::move(staging), inputs,
                                         std::move(outputs), ledger_);
    work->set_batched(batched);
  };
  if (!may_be_over) make_work();
  try {
    if (on_mps) {
      options.fence = fence_of_mps();
    }
    const mccl::Work begun = submit(*group, options);
    if (stream && !batched) raise_if_failed(*group, begun);
    if (may_be_over && begun.done() && !begun.error()) {
      return c10::make_intrusive<EndedWork>(rank_, name.type, sequence, stream, std::move(outputs),
                                            started);
    }
    if (!work) make_work();
    work->start(begun);
    // If the host is already done with the call, the call's end lies in the caller's stream. This
    // is so for every call that is captured in a graph.
    if (!batched) end_on_device(*work, options.caller_waits || begun.done());
  } catch (const std::exception&) {
    if (counts) --sequence_;
    throw_call_error(std::current_exception(), rank_, name.title);
  }
  if (batched) add_to_batch(work);
  return work;
}

}  // namespace mccl_torch
