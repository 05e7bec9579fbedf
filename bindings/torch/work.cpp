#include "work.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>

#include <optional>
#include <string_view>
#include <utility>

#include "callbacks.h"
#include "mccl/error.h"
#include "process.h"

namespace mccl_torch {
namespace {

/// Prefix of every CallName::title.
constexpr std::string_view kTitlePrefix = "mccl:";

void settle(c10::ivalue::Future& future, const std::vector<at::Tensor>& outputs,
            const std::exception_ptr& error) {
  if (error) {
    future.setError(error);
  } else {
    future.markCompleted(c10::IValue(outputs));
  }
}

void settle_and_report(c10::ivalue::Future& future, const std::vector<at::Tensor>& outputs,
                       const std::exception_ptr& error) noexcept {
  try {
    settle(future, outputs, error);
  } catch (const std::exception& e) {
    TORCH_WARN("mccl: a callback of a future threw: ", e.what());
  }
}

void warn_of(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    TORCH_WARN(
        "mccl: a call on GPU memory failed; the data of later work in its stream is invalid: ",
        e.what_without_backtrace());
  } catch (...) {
  }
}

c10d::ErrorType kind_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const mccl::TimeoutError&) {
    return c10d::ErrorType::TIMEOUT;
  } catch (const mccl::PeerError&) {
    return c10d::ErrorType::REMOTE_ERROR;
  } catch (...) {
    return c10d::ErrorType::COMM_ERROR;
  }
}

}  // namespace

std::exception_ptr to_torch_error(const std::exception_ptr& error, int rank, const char* title) {
  const auto prefix = [&] {
    return c10::str("[rank ", rank, "]", *title == '\0' ? "" : " ", title);
  };
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error&) {
    return error;
  } catch (const pybind11::error_already_set&) {
    return error;
  } catch (const mccl::InvalidArgument& e) {
    return std::make_exception_ptr(
        c10::ValueError({__func__, __FILE__, __LINE__}, c10::str(prefix(), ": ", e.what())));
  } catch (const mccl::TimeoutError& e) {
    return std::make_exception_ptr(c10::DistBackendError(
        {__func__, __FILE__, __LINE__}, c10::str(prefix(), " Timed out : ", e.what())));
  } catch (const std::exception& e) {
    return std::make_exception_ptr(
        c10::DistBackendError({__func__, __FILE__, __LINE__}, c10::str(prefix(), ": ", e.what())));
  }
}

void throw_torch_error(const std::exception_ptr& error, int rank, const char* title) {
  std::rethrow_exception(to_torch_error(error, rank, title));
}

std::exception_ptr to_call_error(const std::exception_ptr& error, int rank, const char* title) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error&) {
    return error;
  } catch (const mccl::InvalidArgument& e) {
    const std::string_view name = std::string_view(title).substr(kTitlePrefix.size());
    return to_torch_error(error, rank, std::string_view(e.what()).starts_with(name) ? "" : title);
  } catch (const mccl::Error& e) {
    return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, __LINE__}, e.what()));
  } catch (...) {
    return to_torch_error(error, rank, title);
  }
}

void throw_call_error(const std::exception_ptr& error, int rank, const char* title) {
  std::rethrow_exception(to_call_error(error, rank, title));
}

bool is_recorded() { return at::RecordFunction(at::RecordScope::USER_SCOPE).isActive(); }

void WorkLedger::opened() {
  const std::lock_guard lock(mutex);
  ++pending;
}

void WorkLedger::awaited(const DeviceCall& call) {
  const std::lock_guard lock(mutex);
  if (!call.over) awaited_calls.insert(&call);
}

void WorkLedger::closed(DeviceCall& call) {
  const std::lock_guard lock(mutex);
  call.over = true;
  awaited_calls.erase(&call);
  if (--pending == 0) idle.notify_all();
}

const char* WorkLedger::awaited_title() {
  const std::lock_guard lock(mutex);
  return awaited_calls.empty() ? nullptr : (*awaited_calls.begin())->title;
}

void WorkLedger::missed(const DeviceCall& call, const std::exception_ptr& error) {
  const std::lock_guard lock(mutex);
  if (first_missed || !awaited_calls.contains(&call)) return;
  first_missed = error;
  has_missed = true;
}

void WorkLedger::seen() {
  const std::lock_guard lock(mutex);
  first_missed = nullptr;
  has_missed = false;
}

void WorkLedger::raise_missed() {
  if (!has_missed) return;
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex);
    error = std::exchange(first_missed, nullptr);
    has_missed = false;
  }
  if (error) std::rethrow_exception(error);
}

void WorkLedger::wait_until_idle() {
  std::unique_lock lock(mutex);
  while (!idle.wait_for(lock, kSignalInterval, [this] { return pending == 0; })) {
    lock.unlock();
    check_signals();
    lock.lock();
  }
  lock.unlock();
  raise_missed();
}

WorkMCCL::WorkMCCL(int rank, CallName name, std::uint64_t sequence, TensorStaging staging,
                   const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> outputs,
                   std::shared_ptr<WorkLedger> ledger)
    : Work(rank, name.type, name.title, inputs),
      title_(name.title),
      sequence_(sequence),
      staging_(std::move(staging)),
      device_(staging_.device()),
      on_mps_(staging_.on_mps()),
      outputs_(std::move(outputs)),
      ledger_(std::move(ledger)),
      call_{name.title} {
  // The results are copied to the caller's tensors in a stream, because the thread on which the
  // call ends must not wait for a device.
  if (device_) copies_ = staging_.take_copies();
}

void WorkMCCL::start(const mccl::Work& work) {
  work_ = work;
  ledger_->opened();
  // Receives and coalesced calls are not registered as awaited, because they may never end.
  const bool is_message = c10d::isP2POp(opType_) && opType_ != c10d::OpType::SEND;
  if (device_ && !is_message && opType_ != c10d::OpType::COALESCED) ledger_->awaited(call_);
  // If only the caller's stream waits for the call, the program may stop the profiler before the
  // call is over. Report only the time that the call took on the caller's thread, as NCCL does.
  if (device_ && recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
  if (device_ && work_.done()) {
    // The call is complete for the host. end_in() enqueues the copies of the results in a stream.
    complete();
    return;
  }
  // The engine holds this object, and with it the tensors, until the call is over. Dropping the
  // handle therefore does not free memory that a peer still writes.
  auto self = c10::intrusive_ptr<WorkMCCL>::unsafe_reclaim_from_nonowning(this);
  if (!device_ && !on_mps_) {
    work_.on_done([self = std::move(self)](const std::exception_ptr&) { self->complete(); });
    return;
  }
  // Run complete() on another thread. Freeing GPU memory may take a lock of torch whose holder
  // waits for a stream, and thereby for this thread. Results on MPS may need a copy by the GPU.
  work_.on_done([self = std::move(self)](const std::exception_ptr&) mutable {
    callback_threads().run([self = std::move(self)] { self->complete(); });
  });
}

void WorkMCCL::end_in(std::unique_ptr<StreamEnd> end, const std::vector<const WorkMCCL*>& parts) {
  std::vector<const StreamEnd*> ends;
  for (const WorkMCCL* const part : parts) {
    if (part->end_) ends.push_back(part->end_.get());
  }
  end->follow(work_, ends, copies_);
  copies_.clear();
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(future_mutex_);
    end_ = std::move(end);
    if (future_due_ && !exception_) end_->let_go();
    if (future_ && !future_->completed()) future = future_;
  }
  if (!future) return;
  // getFuture() was called inside the batch, before the call had a StreamEnd.
  const c10::StreamGuard guard(end_->stream());
  settle_and_report(*future, outputs_, nullptr);
}

void WorkMCCL::keep_in(TensorStaging& staging) const {
  if (device_) staging.lie_on(*device_);
  if (on_mps_) staging.lie_on_mps();
}

void WorkMCCL::complete() {
  Phase expected = Phase::running;
  if (phase_.compare_exchange_strong(expected, Phase::finishing)) {
    std::exception_ptr error = work_.error();
    finish_with(error);
    return;
  }
  if (phase_.load() == Phase::finished) return;
  std::unique_lock lock(mutex_);
  cv_.wait(lock, [this] { return completed_; });
}

void WorkMCCL::finish_with(std::exception_ptr error) {
  if (error) {
    ledger_->last_error = static_cast<int>(kind_of(error));
    error = to_call_error(error, rank_, title_);
    // The host may never wait for the call, so record the failure here.
    if (device_) {
      warn_of(error);
      ledger_->missed(call_, error);
    }
  } else {
    try {
      staging_.finish();
    } catch (...) {
      error = std::current_exception();
    }
  }
  staging_.release();
  ended_ = std::chrono::steady_clock::now();
  finish(error);
  phase_ = Phase::finished;
  announce(error);
}

void WorkMCCL::announce(const std::exception_ptr& error) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(future_mutex_);
    future_due_ = true;
    // If the call has a StreamEnd, its future is already complete and streams wait for the end. A
    // failed device call without a StreamEnd completes its future here.
    if (!device_ || (error && !end_)) future = future_;
    if (end_ && !error) end_->let_go();
  }
  std::shared_ptr<WorkLedger::Hook> hook;
  {
    const std::lock_guard lock(ledger_->mutex);
    hook = ledger_->hook;
  }
  if (!future && !hook) {
    ledger_->closed(call_);
    return;
  }
  auto self = c10::intrusive_ptr<WorkMCCL>::unsafe_reclaim_from_nonowning(this);
  callback_threads().run([self, future, hook, error] {
    if (future) settle_and_report(*future, self->outputs_, error);
    if (hook) {
      (*hook)(std::make_shared<c10d::WorkInfo>(self->opType_, self->sequence_, self->started_,
                                               self->ended_, self->ended_ - self->started_));
    }
    self->ledger_->closed(self->call_);
  });
}

bool WorkMCCL::isCompleted() {
  if (phase_.load() == Phase::running && !batched_ && work_.done()) complete();
  return phase_.load() == Phase::finished;
}

int WorkMCCL::sourceRank() const {
  if (opType_ != c10d::OpType::RECV && opType_ != c10d::OpType::RECVANYSOURCE) {
    return Work::sourceRank();
  }
  return work_.source();
}

std::vector<at::Tensor> WorkMCCL::result() { return outputs_; }

void WorkMCCL::synchronize() {
  if (device_ && end_) {
    wait_on_device(kNoTimeout);
  } else if (isCompleted() && exception_) {
    throw_exception();
  }
}

void WorkMCCL::throw_exception() const {
  ledger_->seen();
  std::rethrow_exception(exception_);
}

/// Makes the caller's stream wait for the call. If there is a time limit, the host also waits,
/// because only the host can time out.
bool WorkMCCL::wait_on_device(std::chrono::milliseconds timeout) {
  if (timeout.count() > 0) wait_on_host(timeout);
  if (phase_.load() == Phase::finished && exception_) throw_exception();
  if (phase_.load() != Phase::finished) ledger_->awaited(call_);
  end_->hold_current_stream();
  return true;
}

void WorkMCCL::wait_on_host(std::chrono::milliseconds timeout) {
  if (phase_.load() == Phase::finished) return;
  try {
    wait_with_signals(work_, timeout.count() > 0 ? std::optional(timeout) : std::nullopt);
  } catch (const pybind11::error_already_set&) {
    throw;
  } catch (...) {
    // If the call is still running, only this wait has failed. No title is added, because the
    // engine's message names the call.
    if (!work_.done()) throw_torch_error(std::current_exception(), rank_, "");
  }
  complete();
}

bool WorkMCCL::wait(std::chrono::milliseconds timeout) {
  if (batched_) return true;
  if (device_ && end_) return wait_on_device(timeout);
  wait_on_host(timeout);
  if (exception_) throw_exception();
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> WorkMCCL::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_) return future_;
  const auto type = c10::ListType::create(c10::TensorType::get());
  if (device_ && end_) {
    // The host sees the future as complete immediately. A thread that reads its value makes its
    // current stream wait for the call.
    future_ = c10::make_intrusive<c10::ivalue::Future>(type, std::vector<c10::Device>{*device_});
    if (future_due_) {
      end_->hold_current_stream();
      settle(*future_, outputs_, exception_);
    } else {
      const c10::StreamGuard guard(end_->stream());
      settle(*future_, outputs_, nullptr);
    }
    return future_;
  }
  future_ = device_ ? c10::make_intrusive<c10::ivalue::Future>(type, std::vector{*device_})
                    : c10::make_intrusive<c10::ivalue::Future>(type);
  if (future_due_) settle(*future_, outputs_, exception_);
  return future_;
}

float WorkMCCL::getDuration() const {
  TORCH_CHECK(phase_.load() == Phase::finished, "getDuration: the call is not done yet");
  return std::chrono::duration<float, std::milli>(ended_ - started_).count();
}

}  // namespace mccl_torch
