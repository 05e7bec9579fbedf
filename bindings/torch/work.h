// One call as torch sees it.
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

/// What torch raises for a failure of the engine: ValueError for wrong arguments, else
/// DistBackendError whose text says " Timed out " when a timeout passed.
std::exception_ptr to_torch_error(const std::exception_ptr& error, int rank, const char* title);
[[noreturn]] void throw_torch_error(const std::exception_ptr& error, int rank, const char* title);

/// The same for a call that failed, whose own words name it and the rank; of a timeout they say
/// that a longer " timeout " may help. Wrong arguments do not name the rank.
std::exception_ptr to_call_error(const std::exception_ptr& error, int rank, const char* title);
[[noreturn]] void throw_call_error(const std::exception_ptr& error, int rank, const char* title);

/// What the works of one backend share with it; outlives it while works are pending.
struct WorkLedger {
  using Hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

  /// A call on a device's memory.
  struct DeviceCall {
    const char* title;
    bool over = false;  ///< Guarded by mutex.
  };

  void opened();
  /// A stream waits for the call, or its result is to be there when the group goes.
  void awaited(const DeviceCall& call);
  void closed(DeviceCall& call);
  /// Until every work is done and its hook has run; running signal handlers, as wait() does. Throws
  /// as raise_missed().
  void wait_until_idle();
  /// Title of a call that is awaited and not over; null where there is none.
  const char* awaited_title();
  /// `call` has failed; where it is awaited, its caller may have gone on with what is no result.
  void missed(const DeviceCall& call, const std::exception_ptr& error);
  /// A wait has thrown such a failure.
  void seen();
  /// Throws the first failure since then that was missed, once.
  void raise_missed();

  std::mutex mutex;
  std::condition_variable idle;
  std::size_t pending = 0;
  std::set<const DeviceCall*> awaited_calls;  ///< Guarded by mutex.
  std::exception_ptr first_missed;            ///< Guarded by mutex.
  std::atomic<bool> has_missed{false};
  std::shared_ptr<Hook> hook;        ///< Guarded by mutex; shared since a copy would touch Python.
  std::atomic<bool> watched{false};  ///< Whether there is a hook.
  std::atomic<int> last_error{0};    ///< A c10d::ErrorType.
};

/// Title of a call in the profiler and in messages, with its kind.
struct CallName {
  c10d::OpType type;
  const char* title;
};

/// Whether a profiler records calls here.
bool is_recorded();

/// On CUDA memory a call is over for streams when its end is, which wait() has the caller's stream
/// wait for, while the host goes on; and for the host when all of it is done. On MPS memory it is
/// over as on the host's, and the results are there for whatever the GPU is given afterwards.
class WorkMCCL final : public c10d::Work {
 public:
  WorkMCCL(int rank, CallName name, std::uint64_t sequence, Staging staging,
           const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> outputs,
           std::shared_ptr<WorkLedger> ledger);

  /// Ties the engine's handle to this. Call once, before anyone else sees the object.
  void start(const mccl::Work& work);
  /// Of a call on a device's memory, once it has started, which in a batch is when that ends; its
  /// results lie behind those of `parts`.
  void end_in(std::unique_ptr<StreamEnd> end, const std::vector<const WorkMCCL*>& parts = {});

  /// Where its memory lies, where that is a device whose streams wait.
  std::optional<c10::Device> device() const { return device_; }
  /// Whether a fence must be before it.
  bool on_mps() const { return on_mps_; }
  /// Has `staging`, of a call that this is a part of, lie there too.
  void keep_in(Staging& staging) const;

  /// Marks a call inside an open batch: wait() on it returns at once, since only the end of the
  /// batch starts it.
  void set_batched(bool batched) { batched_ = batched; }

  const mccl::Work& engine_work() const { return work_; }

  bool isCompleted() override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  /// Runs signal handlers meanwhile, and throws what one raised; the call goes on then.
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override { return sequence_; }

  /// Copies results back and tells everyone, once; returns when that is over. The engine's work
  /// must be done.
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
  Staging staging_;
  const std::optional<c10::Device> device_;
  const bool on_mps_;
  StreamEnd::Copies copies_;        ///< Of a device's memory, until the call has its end.
  std::unique_ptr<StreamEnd> end_;  ///< Set before the caller sees the object, or by its batch.
  std::vector<at::Tensor> outputs_;
  std::shared_ptr<WorkLedger> ledger_;
  WorkLedger::DeviceCall call_;
  mccl::Work work_;
  std::atomic<Phase> phase_{Phase::running};
  std::atomic<bool> batched_{false};
  std::mutex future_mutex_;
  bool future_due_ = false;  ///< A future asked for from now on is complete at once, and `end_`
                             ///< may have let go of its stream.
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point ended_{};
};

}  // namespace mccl_torch
