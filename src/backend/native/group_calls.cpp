// The calls of NativeGroup: builds the Request of each call, and passes it to the engine, to the
// queue of ordered calls or to a device path.
#include <fmt/format.h>

#include <cstring>

#include "backend/direct/call.h"
#include "backend/native/group.h"
#include "backend/native/profiler_range.h"
#include "device/registry.h"
#include "mccl/error.h"

namespace mccl::native {
namespace {

/// Returns the request as if its memory were on the host. Used in a failed group, where a call only
/// reports the failure and does not touch its memory.
Request without_devices(const Request& request) {
  Request on_host = request;
  on_host.in.device = on_host.out.device = Device{};
  return on_host;
}

}  // namespace

Work NativeGroup::begin(const Request& request, const CallOptions& options,
                        const Request* on_device) {
  const ProfilerRange range(request);
  const bool is_on_device = mccl::on_device(request);
  if (setup_->stages_always && !is_on_device && (request.in.allocation || request.out.allocation))
    return ordered_calls().enqueue(staged::as_the_gpu_sees(request), options);
  if (path_ && is_collective(request.call) && !batch_is_open()) {
    if (is_on_device && path_->has_to_meet()) refuse_capture(request, options);
    path_->before_collective(request, timeout_of(options),
                             options.caller_waits || options.may_meet);
  }
  if (!is_on_device && !options.fence) {
    const staged::OrderedCalls* const ordered = ordered_if_any_.load(std::memory_order_acquire);
    if (!ordered || !ordered->is_busy()) return start(request, options);
    return this->ordered_calls().enqueue(request, options);
  }
  const Request& direct = on_device ? *on_device : request;
  if (direct::Path* const way = way_for(direct, options))
    return begin_directly(*way, direct, options);
  if (has_failed() && !options.fence && !batch_is_open())
    return start(without_devices(request), options);
  return ordered_calls().enqueue(request, options);
}

/// Throws if the stream is being captured. In order to connect the devices, the ranks make calls on
/// host memory, allocate memory and measure times, and a graph cannot record any of these actions.
void NativeGroup::refuse_capture(const Request& request, const CallOptions& options) const {
  const Device device = device_of(request);
  if (!device::depot_of(device)->accelerator().is_capturing(options.stream)) return;
  throw InvalidArgument(
      fmt::format("{} of group '{}': the stream is being captured, but the GPUs of the ranks are "
                  "not connected yet; make a first collective on GPU memory before the capture",
                  name_of(request.call.collective), name()));
}

/// Returns the path that runs the call; null if the call goes through the host. Only the engine
/// detects that a rank is lost, and kernels of the path may wait for that rank. Therefore arranges
/// that a failure of the group aborts the path.
direct::Path* NativeGroup::way_for(const Request& request, const CallOptions& options) {
  if (!path_ || options.fence || options.compression || batch_is_open()) return nullptr;
  if (request.in.device.kind == DeviceKind::metal || request.out.device.kind == DeviceKind::metal)
    return nullptr;
  std::call_once(path_is_watched_, [this] {
    state_->watch_failure([weak = std::weak_ptr(path_), log = engine_->log(),
                           name = name()](const engine::Failure& failure) {
      if (failure.kind != engine::FailureKind::aborted) {
        log.warn("group '{}': calls on GPU memory end without a result: {}", name, failure.reason);
      }
      if (const std::shared_ptr<direct::Path> alive = weak.lock()) alive->abort();
    });
  });
  return path_->way_for(request);
}

/// `group` is null or, like all groups of a context, a NativeGroup.
void NativeGroup::split_path(Group* group, int color, int key) {
  if (!path_) return;
  auto* const child = dynamic_cast<NativeGroup*>(group);
  std::shared_ptr<direct::Path> part = path_->split(child, color, key);
  if (part && child && !(child->path_ && child->path_->inherits(part))) child->use(std::move(part));
}

/// While the stream is being captured, every call is enqueued in that stream, as if caller_waits
/// were set. The asynchronous path cannot be captured: a replayed graph would neither repeat the
/// work in the queue's own stream nor advance the call number.
Work NativeGroup::begin_directly(direct::Path& way, const Request& request,
                                 const CallOptions& options) {
  if (notices_ && coding_of(request, options)) {
    notices_->warn(*this,
                   "collectives on GPU memory do not use the group's compression, so their sums "
                   "are exact; set MCCL_BACKEND=native to compress these sums");
  }
  device::SerialQueue& queue = *path_->queue();
  const auto enqueue = [&](void* stream) { way.enqueue(request, stream); };
  const bool is_captured = queue.accelerator().is_capturing(options.stream);
  const Clock::time_point now = Clock::now();
  const Clock::time_point deadline = engine::deadline_after(now, timeout_of(options));
  // Called without the queue's lock, because it may wait for the engine's progress lock.
  const auto record = [&] {
    Request recorded = request;
    if (options.site) recorded.call.site = options.site->number;
    recorded.call = state_->enqueued().record(recorded.call, now, deadline);
    engine_->record_enqueued(*state_, recorded, way.algorithm());
    return recorded.call;
  };
  if (options.caller_waits || is_captured) {
    queue.run_on(options.stream, options.stream_may_go, enqueue);
    if (is_captured) {
      state_->enqueued().stop();
    } else {
      record();
    }
    return {};
  }
  // The DirectCall and the thread that looks after it must exist before the kernel starts: once the
  // kernel uses the caller's memory, nothing may fail.
  staged::OrderedCalls& ordered = ordered_calls();
  (void)ordered.begin_watching();
  const auto call = std::make_shared<direct::DirectCall>(path_, engine_, state_, now, deadline);
  const device::Word number = queue.run_beside(options.stream, enqueue);
  call->wait_for(number, record());
  ordered.look_after(call);
  return Work(call);
}

std::optional<device::Word> NativeGroup::last_on_device() const {
  device::SerialQueue* const queue = path_ ? path_->queue() : nullptr;
  return queue ? std::optional(queue->end()) : std::nullopt;
}

staged::OrderedCalls& NativeGroup::ordered_calls() {
  const std::lock_guard lock(ordered_mutex_);
  if (!ordered_) {
    ordered_ = std::make_shared<staged::OrderedCalls>(*this);
    ordered_if_any_.store(ordered_.get(), std::memory_order_release);
  }
  return *ordered_;
}

void NativeGroup::begin_coalescing() { begin_batch(); }

Work NativeGroup::end_coalescing() {
  Work work = end_batch();
  staged::OrderedCalls* const ordered = ordered_if_any_.load(std::memory_order_acquire);
  return ordered ? ordered->end_batch(std::move(work)) : work;
}

/// Fills left_out with zeros, because the engine writes to it only if the call is compressed.
Work NativeGroup::begin_sum(const Request& request, const CallOptions& options) {
  const Buffer& left = options.left_out;
  if (left.data) {
    if (on_device(request) || left.device.kind != DeviceKind::cpu) {
      throw InvalidArgument(fmt::format(
          "{}: left_out requires host memory; place input, output and left_out on the host",
          name_of(request.call.collective)));
    }
    check_left_out(request.call.collective, request.in, request.out, left);
    // Before the fence has passed, the memory must not be touched. StagedCall::clear_left_out()
    // clears it afterwards.
    if (left.count > 0 && !options.fence) std::memset(left.data, 0, left.bytes());
  }
  return begin(request, options);
}

std::size_t NativeGroup::bytes_to_sum(std::size_t count, DType dtype, ReduceOp op,
                                      const CallOptions& options) const {
  Request request;
  request.call.collective = Collective::all_reduce;
  request.call.dtype = request.in.dtype = request.out.dtype = dtype;
  request.call.kind = op.kind;
  request.in.count = request.out.count = count;
  const Coding coding = coding_of(request, options);
  return coding ? coding.bytes(count, Coded::contribution) : count * size_of(dtype);
}

Work NativeGroup::all_reduce(ConstBuffer in, Buffer out, ReduceOp op, const CallOptions& options) {
  return begin_sum(arguments().sum(Collective::all_reduce, in, out, op), options);
}

Work NativeGroup::broadcast(Buffer data, int root, const CallOptions& options) {
  return begin(arguments().broadcast(data, root), options);
}

Work NativeGroup::reduce(ConstBuffer in, Buffer out, ReduceOp op, int root,
                         const CallOptions& options) {
  return begin(arguments().sum(Collective::reduce, in, out, op, root), options);
}

Work NativeGroup::all_gather(ConstBuffer in, Buffer out, const CallOptions& options) {
  return begin(arguments().in_parts(Collective::all_gather, in, out), options);
}

Work NativeGroup::all_gatherv(ConstBuffer in, Buffer out, Counts counts,
                              const CallOptions& options) {
  return begin(arguments().in_parts(Collective::all_gather, in, out, counts), options);
}

Work NativeGroup::gather(ConstBuffer in, Buffer out, int root, const CallOptions& options) {
  return begin(arguments().in_parts(Collective::gather, in, out, {}, root), options);
}

Work NativeGroup::gatherv(ConstBuffer in, Buffer out, Counts counts, int root,
                          const CallOptions& options) {
  return begin(arguments().in_parts(Collective::gather, in, out, counts, root), options);
}

Work NativeGroup::scatter(ConstBuffer in, Buffer out, int root, const CallOptions& options) {
  return begin(arguments().in_parts(Collective::scatter, in, out, {}, root), options);
}

Work NativeGroup::scatterv(ConstBuffer in, Buffer out, Counts counts, int root,
                           const CallOptions& options) {
  return begin(arguments().in_parts(Collective::scatter, in, out, counts, root), options);
}

Work NativeGroup::reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op,
                                 const CallOptions& options) {
  return begin_sum(arguments().in_parts(Collective::reduce_scatter, in, out, {}, -1, op), options);
}

Work NativeGroup::reduce_scatterv(ConstBuffer in, Buffer out, Counts counts, ReduceOp op,
                                  const CallOptions& options) {
  return begin_sum(arguments().in_parts(Collective::reduce_scatter, in, out, counts, -1, op),
                   options);
}

Work NativeGroup::all_to_all(ConstBuffer in, Buffer out, const CallOptions& options) {
  return begin(arguments().all_to_all(in, out), options);
}

Work NativeGroup::all_to_allv(ConstBuffer in, Counts in_counts, Buffer out, Counts out_counts,
                              const CallOptions& options) {
  const Request request = arguments().all_to_allv(in, in_counts, out, out_counts);
  if (!options.equal_counts || !on_device(request)) return begin(request, options);
  const Request in_equal_parts = arguments().all_to_all(in, out);
  return begin(request, options, &in_equal_parts);
}

Work NativeGroup::barrier(const CallOptions& options) {
  return begin(arguments().barrier(), options);
}

Work NativeGroup::send(ConstBuffer data, int peer, std::uint32_t tag, const CallOptions& options) {
  return begin(arguments().send(data, peer, tag), options);
}

Work NativeGroup::recv(Buffer data, int peer, std::uint32_t tag, const CallOptions& options) {
  return begin(arguments().recv(data, peer, tag), options);
}

}  // namespace mccl::native
