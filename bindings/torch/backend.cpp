#include "backend.h"

#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <utility>

#include "backend/staged/poll_backoff.h"
#include "contexts.h"
#include "mccl/error.h"
#include "process.h"
#include "python/call_line.h"

namespace mccl_torch {

using c10d::OpType;
using mccl::CallOptions;
using mccl::Group;

ProcessGroupMCCL::ProcessGroupMCCL(BackendParts membership)
    : c10d::Backend(membership.group->rank(), membership.group->size()),
      membership_(std::move(membership)),
      name_(membership_.group->name()),
      forks_(forks_so_far()),
      timeout_(membership_.timeout),
      options_(c10::make_intrusive<Options>(membership_.timeout)) {
  init();
  options_->global_ranks_in_group = membership_.global_ranks;
  options_->group_name = name_;
}

ProcessGroupMCCL::~ProcessGroupMCCL() {
  try {
    shutdown();
  } catch (const std::exception& error) {
    // shutdown() throws if a signal handler raises an exception, for example after Control-C. The
    // destructor only warns, because it must not throw.
    TORCH_WARN("mccl: group \"", name_, "\": ", error.what());
  }
}

c10::intrusive_ptr<c10d::Backend::Options> ProcessGroupMCCL::getBackendOptions() {
  return c10::static_intrusive_pointer_cast<c10d::Backend::Options>(options_);
}

void ProcessGroupMCCL::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  options_->timeout = timeout;
}

std::shared_ptr<Group> ProcessGroupMCCL::open_group(const char* call) const {
  if (was_forked()) {
    C10_THROW_ERROR(
        DistBackendError,
        c10::str("[rank ", rank_, "] ", call,
                 ": this process was forked from the process that created the group and cannot use "
                 "the group's connections; call init_process_group in the child, or "
                 "start it with the spawn method"));
  }
  const std::lock_guard lock(mutex_);
  if (!membership_.group) {
    const char* const reason = reconfiguring_
                                   ? "\" has no members; call reconfigure first"
                                   : "\" has been shut down; call init_process_group or new_group "
                                     "again";
    C10_THROW_ERROR(DistBackendError,
                    c10::str("[rank ", rank_, "] ", call, ": group \"", name_, reason));
  }
  return membership_.group;
}

CallOptions ProcessGroupMCCL::call_options(std::chrono::milliseconds timeout, bool async) const {
  CallOptions options;
  options.timeout = timeout == c10d::kUnsetTimeout ? timeout_.load() : timeout;
  options.caller_waits = !async;
  options.may_meet = true;
  options.site = mccl::python::line_of_caller_without_gil();
  return options;
}

void ProcessGroupMCCL::require_root(const char* call, std::int64_t root) const {
  if (root >= 0 && root < size_) return;
  invalid_argument(call, c10::str("invalid root rank: ", root, " (expected 0 to ", size_ - 1, ")"));
}

void ProcessGroupMCCL::end_on_device(WorkMCCL& work, bool caller_waits,
                                     const std::vector<const WorkMCCL*>& parts) {
  const std::optional<c10::Device> device = work.device();
  if (!device) return;
  const OpType type = work.retrieveOpType();
  std::unique_ptr<StreamEnd> end;
  if (caller_waits) {
    end = std::make_unique<StreamEnd>(current_stream(*device), StreamEnd::Place::callers);
  } else if (c10d::isP2POp(type) || type == OpType::COALESCED) {
    end = std::make_unique<StreamEnd>(*device);
  } else {
    end = std::make_unique<StreamEnd>(end_streams_.in_order(*device), StreamEnd::Place::in_order);
  }
  work.end_in(std::move(end), parts);
}

void ProcessGroupMCCL::note_device(c10::Device device) {
  {
    const std::lock_guard lock(devices_mutex_);
    if (std::find(devices_.begin(), devices_.end(), device) != devices_.end()) return;
    devices_.push_back(device);
  }
  // Create the stream before the call. Creation may block until the device is idle, and the work of
  // a call keeps the device busy until other ranks make the call too.
  end_streams_.in_order(device);
}

/// Blocks until the current streams of all devices that calls have used are idle, so that a barrier
/// starts after all work in these streams.
void ProcessGroupMCCL::finish_streams() {
  std::vector<c10::Device> devices;
  {
    const std::lock_guard lock(devices_mutex_);
    devices = devices_;
  }
  for (const c10::Device device : devices) finish_current_stream(device);
}

/// Does not query streams that a caller created, because they may have been destroyed. The ledger
/// and the group's queue on the device track the calls in those streams.
const char* ProcessGroupMCCL::unfinished(const mccl::Group& group,
                                         std::optional<std::uint32_t> last) {
  if (const char* const title = ledger_->awaited_title()) return title;
  if (last && !group.has_come_to(*last)) return "a collective on GPU memory";
  const std::lock_guard lock(devices_mutex_);
  const bool over = std::all_of(devices_.begin(), devices_.end(), current_stream_is_done);
  return over ? nullptr : "the current stream";
}

/// Waits until all calls on devices have ended, in any stream, because destroying the group would
/// abort them. Gives up after the group's timeout, with a warning.
void ProcessGroupMCCL::finish_calls_on_devices() {
  if (was_forked()) return;
  const std::shared_ptr<Group> group = current_group();
  if (!group) return;
  const std::chrono::milliseconds timeout = timeout_;
  const auto begun = std::chrono::steady_clock::now();
  auto checked = begun;
  const auto last = group->last_on_device();
  for (const mccl::staged::PollBackoff backoff; group->failure().empty(); backoff.pause()) {
    const char* const title = unfinished(*group, last);
    if (!title) return;
    const auto now = std::chrono::steady_clock::now();
    if (timeout.count() > 0 && now - begun >= timeout) {
      TORCH_WARN("mccl: rank ", rank_, " releases group \"", name_, "\" after ", timeout.count(),
                 " ms while a GPU still runs ", title, ": the result of that work is invalid");
      return;
    }
    if (now - checked < kSignalInterval) continue;
    checked = now;
    check_signals();
  }
}

namespace {

std::vector<const WorkMCCL*> works_of(const std::vector<ProcessGroupMCCL::WorkPtr>& parts) {
  std::vector<const WorkMCCL*> works;
  for (const auto& part : parts) works.push_back(static_cast<const WorkMCCL*>(part.get()));
  return works;
}

}  // namespace

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::all_of(CallName name, const std::vector<WorkPtr>& parts,
                                                   Tensors outputs, std::function<void()> finish) {
  if (parts.size() == 1) return parts.front();
  std::vector<mccl::Work> engine_works;
  for (const auto& part : parts) {
    engine_works.push_back(static_cast<WorkMCCL*>(part.get())->engine_work());
  }
  TensorStaging staging(name.title);
  for (const auto& output : outputs) staging.keep(output);
  staging.then([parts, finish = std::move(finish)] {
    for (const auto& part : parts) static_cast<WorkMCCL*>(part.get())->complete();
    if (finish) finish();
  });
  auto work = c10::make_intrusive<WorkMCCL>(rank_, name, sequence_.load(), std::move(staging),
                                            outputs, outputs, ledger_);
  const bool batched = open_batches_ > 0 && in_batch();
  work->set_batched(batched);
  work->start(mccl::Work::all_of(std::move(engine_works)));
  if (batched) {
    add_to_batch(work);
  } else {
    end_on_device(*work, false, works_of(parts));
  }
  return work;
}

namespace {

/// Converts torch's tag. Refuses a negative tag, because the engine would see it as one of the
/// upper half of its tags, which are reserved for internal calls.
std::uint32_t checked_tag(const char* call, int tag) {
  if (tag < 0) invalid_argument(call, c10::str("Tag must be nonnegative (got ", tag, ")"));
  return static_cast<std::uint32_t>(tag);
}

}  // namespace

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::send(Tensors& tensors, int peer, int tag) {
  const at::Tensor& tensor = require_single("send", tensors, "tensor");
  const std::uint32_t engine_tag = checked_tag("send", tag);
  TensorStaging staging("send");
  const mccl::ConstBuffer data = staging.input(tensor, movable_type(tensor.scalar_type()));
  return issue({OpType::SEND, "mccl:send"}, std::move(staging), tensors, {},
               call_options(c10d::kUnsetTimeout, true),
               [=](Group& group, const CallOptions& options) {
                 return group.send(data, peer, engine_tag, options);
               });
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::recv(Tensors& tensors, int peer, int tag) {
  const at::Tensor& tensor = require_single("recv", tensors, "tensor");
  const std::uint32_t engine_tag = checked_tag("recv", tag);
  if (peer < 0 || peer >= size_) {
    invalid_argument("recv", c10::str("invalid source rank: ", peer, " (expected 0 to ", size_ - 1,
                                      ", without ", rank_, ")"));
  }
  TensorStaging staging("recv");
  const mccl::Buffer data = staging.output(tensor, movable_type(tensor.scalar_type()));
  return issue({OpType::RECV, "mccl:recv"}, std::move(staging), tensors, tensors,
               call_options(c10d::kUnsetTimeout, true),
               [=](Group& group, const CallOptions& options) {
                 return group.recv(data, peer, engine_tag, options);
               });
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor& tensor = require_single("recvAnysource", tensors, "tensor");
  const std::uint32_t engine_tag = checked_tag("recvAnysource", tag);
  TensorStaging staging("recvAnysource");
  const mccl::Buffer data = staging.output(tensor, movable_type(tensor.scalar_type()));
  return issue({OpType::RECVANYSOURCE, "mccl:recvAnySource"}, std::move(staging), tensors, tensors,
               call_options(c10d::kUnsetTimeout, true),
               [=](Group& group, const CallOptions& options) {
                 return group.recv(data, mccl::kAnySource, engine_tag, options);
               });
}

bool ProcessGroupMCCL::in_batch() {
  const std::lock_guard lock(batches_mutex_);
  return batches_.contains(std::this_thread::get_id());
}

void ProcessGroupMCCL::startCoalescing() {
  // If the code inside an earlier batch raised an exception, torch has left that batch open. Start
  // its calls.
  if (open_batches_ > 0 && in_batch()) endCoalescing();
  group_for("mccl:coalesced")->begin_coalescing();
  const std::lock_guard lock(batches_mutex_);
  batches_[std::this_thread::get_id()];
  ++open_batches_;
}

ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::endCoalescing() {
  Batch batch;
  {
    const std::lock_guard lock(batches_mutex_);
    const auto found = batches_.find(std::this_thread::get_id());
    TORCH_CHECK(found != batches_.end(),
                "ProcessGroupMCCL::endCoalescing: no batch is open on this thread; call "
                "startCoalescing first");
    batch = std::move(found->second);
    batches_.erase(found);
    --open_batches_;
  }
  for (const auto& work : batch) work->set_batched(false);
  constexpr CallName kName{OpType::COALESCED, "mccl:coalesced"};
  TensorStaging staging(kName.title);
  staging.then([batch] {
    for (const auto& work : batch) work->complete();
  });
  Tensors outputs;
  std::vector<const WorkMCCL*> works;
  for (const auto& work : batch) {
    works.push_back(work.get());
    for (auto& tensor : work->result()) outputs.push_back(tensor);
    work->keep_in(staging);
  }
  auto work = c10::make_intrusive<WorkMCCL>(rank_, kName, sequence_.load(), std::move(staging),
                                            outputs, outputs, ledger_);
  try {
    const auto group = open_group(kName.title);
    const mccl::Work begun = group->end_coalescing();
    if (work->device()) raise_if_failed(*group, begun);
    work->start(begun);
    for (const auto& one : batch) end_on_device(*one, false);
    end_on_device(*work, false, works);
  } catch (const std::exception&) {
    throw_torch_error(std::current_exception(), rank_, kName.title);
  }
  return work;
}

void ProcessGroupMCCL::abort() {
  if (was_forked()) return;
  if (const auto group = current_group())
    group->abort(c10::str("aborted by rank ", rank_, " of group \"", name_, "\""));
  if (reconfiguring_) let_go();
}

void ProcessGroupMCCL::shutdown() {
  const WithoutGil without_gil;
  std::exception_ptr interrupted;
  try {
    finish_calls_on_devices();
  } catch (const pybind11::error_already_set&) {
    interrupted = std::current_exception();
  } catch (const std::exception& error) {
    TORCH_WARN("mccl: calls of group \"", name_, "\" have not ended: ", error.what());
  }
  let_go();
  if (interrupted) std::rethrow_exception(interrupted);
}

void ProcessGroupMCCL::let_go() {
  BackendParts last;
  {
    const std::lock_guard lock(mutex_);
    std::swap(last.group, membership_.group);
    std::swap(last.context, membership_.context);
  }
  // In a forked child, the connections and threads belong to the parent, so leak the handles
  // instead of destroying them.
  if (was_forked()) new BackendParts(std::move(last));
}

c10d::ErrorType ProcessGroupMCCL::getError() {
  const std::lock_guard lock(mutex_);
  if (!membership_.group || membership_.group->failure().empty()) {
    return c10d::ErrorType::SUCCESS;
  }
  const int last = ledger_->last_error;
  return last == 0 ? c10d::ErrorType::COMM_ERROR : static_cast<c10d::ErrorType>(last);
}

void ProcessGroupMCCL::registerOnCompletionHook(
    std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  const std::lock_guard lock(ledger_->mutex);
  TORCH_CHECK(!ledger_->hook, "ProcessGroupMCCL OnCompletion hook already registered");
  ledger_->hook = std::make_shared<WorkLedger::Hook>(std::move(hook));
  ledger_->watched = true;
  // hasHooks() of the base class checks whether onCompletionHook_ is set. The function stored there
  // is never called.
  onCompletionHook_ = [](const std::shared_ptr<c10d::WorkInfo>&) {};
}

void ProcessGroupMCCL::waitForPendingWorks() {
  const WithoutGil without_gil;
  ledger_->wait_until_idle();
}

}  // namespace mccl_torch
