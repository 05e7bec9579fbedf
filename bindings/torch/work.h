// Presents a call of MCCL as torch's c10d::Work.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "mccl/work.h"
#include "stream_end.h"
#include "tensors.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace mccl_torch {

/// Converts a failure of the engine to the exception that torch raises: ValueError for wrong
/// arguments, else DistBackendError. If the failure is a timeout, the text of the exception
/// contains " Timed out ". Returns errors of torch and of Python as they are.
std::exception_ptr to_torch_error(const std::exception_ptr& error, int rank, const char* title);
[[noreturn]] void throw_torch_error(const std::exception_ptr& error, int rank, const char* title);

/// Converts the error of a failed call like to_torch_error(), but without its prefix: the engine's
/// message already contains the call and the rank and, if the call has timed out, " timeout ". Only
/// a message about a wrong argument lacks the rank, which is therefore added.
std::exception_ptr to_call_error(const std::exception_ptr& error, int rank, const char* title);
[[noreturn]] void throw_call_error(const std::exception_ptr& error, int rank, const char* title);

/// State that one backend shares with its works. Outlives the backend while works are pending.
struct WorkLedger {
  using Hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

  /// A call on a device's memory.
  struct DeviceCall {
    const char* title;
    bool over = false;  ///< Guarded by WorkLedger::mutex.
  };

  /// Counts one more pending Work.
  void opened();
  /// Records that a stream waits for the call, or that the call must end before the group is
  /// destroyed. No-op if the call is over.
  void awaited(const DeviceCall& call);
  /// Records that `call` is over, and counts its work as done.
  void closed(DeviceCall& call);
  /// Blocks until every work is done and its hook has run. Runs signal handlers meanwhile, as
  /// WorkMCCL::wait() does. Throws the errors of raise_missed().
  void wait_until_idle();
  /// Title of a call for which awaited() was called and that is not over; null if there is none.
  const char* awaited_title();
  /// Records the failure of `call` if awaited() was called for it. The host thread did not wait for
  /// the call, so the program may have continued with an invalid result.
  void missed(const DeviceCall& call, const std::exception_ptr& error);
  /// Forgets the failure that missed() has recorded. Called when a wait throws the error of a call.
  void seen();
  /// Throws the first failure that missed() has recorded since the last seen() or raise_missed().
  /// Each failure is thrown only once.
  void raise_missed();

  std::mutex mutex;
  std::condition_variable idle;
  std::size_t pending = 0;
  std::set<const DeviceCall*> awaited_calls;  ///< Guarded by mutex.
  std::exception_ptr first_missed;            ///< Guarded by mutex.
  std::atomic<bool> has_missed{false};
  std::shared_ptr<Hook> hook;  ///< Guarded by mutex; shared, because copying it would need the GIL.
  std::atomic<bool> watched{false};  ///< True if `hook` is set. Readable without the mutex.
  std::atomic<int> last_error{0};    ///< The last error as a c10d::ErrorType; 0 if there is none.
};

/// The type of a call, and the call's title in the profiler and in messages.
struct CallName {
  c10d::OpType type;
  const char* title;
};

/// True if torch's profiler records operations on this thread.
bool is_recorded();

/// Work of one call. On CUDA memory, streams wait for the call's end: wait() makes the caller's
/// stream wait while the host continues. For the host, an asynchronous call is done once the device
/// has finished it. On MPS memory, a call ends like a call on host memory, and work that is
/// enqueued on the GPU after its end sees the results.
class WorkMCCL final : public c10d::Work {
 public:
  WorkMCCL(int rank, CallName name, std::uint64_t sequence, TensorStaging staging,
           const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> outputs,
           std::shared_ptr<WorkLedger> ledger);

  /// Attaches the engine's handle. Must be called once, before any other code sees this object.
  void start(const mccl::Work& work);
  /// Device memory only: makes the stream of `end` wait for the call and for the ends of `parts`,
  /// the calls of a batch, and then copy the results. Must be called after the call or its batch
  /// has started.
  void end_in(std::unique_ptr<StreamEnd> end, const std::vector<const WorkMCCL*>& parts = {});

  /// Device of the call's memory, if that is a device with streams.
  std::optional<c10::Device> device() const { return device_; }
  bool on_mps() const { return on_mps_; }
  /// Sets the device of `staging` to the device of this call. `staging` belongs to the batch that
  /// contains this call.
  void keep_in(TensorStaging& staging) const;

  /// Marks a call inside an open batch. wait() on such a call returns immediately, because only the
  /// end of the batch starts the call.
  void set_batched(bool batched) { batched_ = batched; }

  const mccl::Work& engine_work() const { return work_; }

  bool isCompleted() override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  /// Runs signal handlers while it waits, and throws the exception of a handler that raises one;
  /// the call then continues.
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override { return sequence_; }

  /// Must be called only after the engine's work has ended. The first call copies results to the
  /// caller's tensors, then notifies futures and hooks. Later calls block until the copies are
  /// made.
  void complete();

 private:
  enum class Phase { running, finishing, finished };

  void finish_with(std::exception_ptr error);
  void announce(const std::exception_ptr& error);

  [[noreturn]] void throw_exception() const;
  bool wait_on_device(std::chrono::milliseconds timeout);
  void wait_on_host(std::chrono::milliseconds timeout);

  const char* title_;
  std::uint64_t sequence_;
  TensorStaging staging_;
  const std::optional<c10::Device> device_;
  const bool on_mps_;
  StreamEnd::Copies copies_;  ///< Device memory only: copies that end_in() enqueues.
  /// Null for host and MPS memory. Set before the caller gets this Work, or when its batch ends.
  std::unique_ptr<StreamEnd> end_;
  std::vector<at::Tensor> outputs_;
  std::shared_ptr<WorkLedger> ledger_;
  WorkLedger::DeviceCall call_;
  mccl::Work work_;
  std::atomic<Phase> phase_{Phase::running};
  std::atomic<bool> batched_{false};
  std::mutex future_mutex_;
  /// True once the call is over. A future that is made from then on completes immediately, and
  /// `end_` may have given its stream back.
  bool future_due_ = false;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point ended_{};
};

}  // namespace mccl_torch
