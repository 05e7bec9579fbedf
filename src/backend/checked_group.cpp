#include "backend/checked_group.h"

#include <fmt/format.h>

#include <cstring>

#include "backend/check.h"
#include "backend/direct/call.h"
#include "device/registry.h"
#include "mccl/error.h"

namespace mccl {
namespace {

/// Returns the request as if its memory were on the host. Used in a failed group, where a call only
/// reports the failure and does not touch its memory.
Request without_devices(const Request& request) {
  Request told = request;
  told.in.device = told.out.device = Device{};
  return told;
}

}  // namespace

Work CheckedGroup::begin(const Request& request, const CallOptions& options,
                         const Request* on_device) {
  const bool is_shared =
      !staged::on_device(request) && (request.in.allocation || request.out.allocation);
  if (stages_always_ && is_shared) return line().enqueue(staged::as_the_gpu_sees(request), options);
  if (path_ && is_collective(request.call) && !batch_is_open()) {
    if (staged::on_device(request) && path_->has_to_meet()) refuse_capture(request, options);
    path_->comes(request, timeout_of(options), options.caller_waits || options.may_meet);
  }
  if (!staged::needs_stage(request, options)) {
    const staged::Line* const line = line_if_any_.load(std::memory_order_acquire);
    if (!line || !line->is_busy()) return start(request, options);
  } else if (const Request& direct = on_device ? *on_device : request;
             goes_directly(direct, options)) {
    return begin_directly(direct, options);
  } else if (has_failed() && !options.fence && !batch_is_open()) {
    return start(without_devices(request), options);
  }
  return line().enqueue(request, options);
}

/// Throws if the stream is being captured. To connect the devices, the ranks make calls on host
/// memory, allocate and measure; a graph can record none of these.
void CheckedGroup::refuse_capture(const Request& request, const CallOptions& options) const {
  const bool by_input = request.in.device.kind != DeviceKind::cpu;
  const Device device = by_input ? request.in.device : request.out.device;
  if (!device::depot_of(device)->accelerator().is_capturing(options.stream)) return;
  throw InvalidArgument(
      fmt::format("{} of group '{}': the stream is being captured, but the GPUs of the ranks are "
                  "not connected yet; make a first collective on GPU memory before the capture",
                  name_of(request.call.collective), name()));
}

/// True if the path runs the call. The first call may make the ranks meet, which fails if one has
/// left. In later calls, kernels may wait for a rank that has left. Only the engine detects that,
/// so a failure of the group must abort the path.
bool CheckedGroup::goes_directly(const Request& request, const CallOptions& options) {
  if (!path_ || options.fence || options.compression || batch_is_open()) return false;
  if (staged::lies_on(DeviceKind::metal, request)) return false;
  std::call_once(path_is_watched_, [this] {
    watch_failure([weak = std::weak_ptr(path_)] {
      if (const std::shared_ptr<direct::Path> alive = weak.lock()) alive->abort();
    });
  });
  return path_->takes(request);
}

/// `group` is null or, like all groups of a context, a CheckedGroup.
void CheckedGroup::split_path(Group* group, int color, int key) {
  if (!path_) return;
  auto* const child = dynamic_cast<CheckedGroup*>(group);
  std::shared_ptr<direct::Path> part = path_->split(child, color, key);
  if (part && child && !(child->path_ && child->path_->inherits(part))) child->use(std::move(part));
}

/// While the stream is being captured, every call is enqueued in that stream, as if the caller
/// waited. The asynchronous path cannot be captured: a replayed graph would neither repeat the work
/// in the lane's own stream nor advance the call number.
Work CheckedGroup::begin_directly(const Request& request, const CallOptions& options) {
  if (notices_ && coding_of(request, options)) {
    notices_->warn(*this,
                   "collectives on GPU memory do not use the group's compression, so their sums "
                   "are exact; set MCCL_BACKEND=native to use it");
  }
  device::Lane& lane = *path_->lane();
  if (options.caller_waits || lane.accelerator().is_capturing(options.stream)) {
    lane.run_on(options.stream, options.stream_may_go,
                [&](void* stream) { path_->enqueue(request, stream); });
    return {};
  }
  const auto timeout = timeout_of(options);
  const auto call = std::make_shared<direct::DirectCall>(
      path_, request, options.stream, rank(),
      timeout.count() > 0 ? Clock::now() + timeout : Clock::time_point::max());
  line().look_after(call);
  return Work(call);
}

std::optional<device::Word> CheckedGroup::last_on_device() const {
  device::Lane* const lane = path_ ? path_->lane() : nullptr;
  return lane ? std::optional(lane->end()) : std::nullopt;
}

bool CheckedGroup::has_come_to(device::Word number) const { return path_->lane()->ended(number); }

staged::Line& CheckedGroup::line() {
  const std::lock_guard lock(line_mutex_);
  if (!line_) {
    line_ = std::make_shared<staged::Line>(static_cast<staged::HostCalls&>(*this));
    line_if_any_.store(line_.get(), std::memory_order_release);
  }
  return *line_;
}

void CheckedGroup::close_line() {
  if (path_) path_->abort();
  const std::lock_guard lock(line_mutex_);
  if (line_) line_->close();
}

void CheckedGroup::begin_coalescing() { begin_batch(); }

Work CheckedGroup::end_coalescing() {
  Work work = end_batch();
  staged::Line* const line = line_if_any_.load(std::memory_order_acquire);
  return line ? line->end_batch(std::move(work)) : work;
}

Work CheckedGroup::all_reduce(ConstBuffer in, Buffer out, ReduceOp op, const CallOptions& options) {
  return begin_sum(arguments().sum(Collective::all_reduce, in, out, op), options);
}

/// Fills left_out with zeros, which remain unless the engine writes to it.
Work CheckedGroup::begin_sum(const Request& request, const CallOptions& options) {
  const Buffer& left = options.left_out;
  if (left.data) {
    if (staged::on_device(request) || left.device.kind != DeviceKind::cpu) {
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

std::size_t CheckedGroup::bytes_to_sum(std::size_t count, DType dtype, ReduceOp op,
                                       const CallOptions& options) const {
  Request request;
  request.call.collective = Collective::all_reduce;
  request.call.dtype = request.in.dtype = request.out.dtype = dtype;
  request.call.kind = op.kind;
  request.in.count = request.out.count = count;
  const Coding coding = coding_of(request, options);
  return coding ? coding.bytes(count, Coded::contribution) : count * size_of(dtype);
}

Work CheckedGroup::broadcast(Buffer data, int root, const CallOptions& options) {
  return begin(arguments().broadcast(data, root), options);
}

Work CheckedGroup::reduce(ConstBuffer in, Buffer out, ReduceOp op, int root,
                          const CallOptions& options) {
  return begin(arguments().sum(Collective::reduce, in, out, op, root), options);
}

Work CheckedGroup::all_gather(ConstBuffer in, Buffer out, const CallOptions& options) {
  const Shares shares = Shares::equal(size(), in.count);
  return begin(arguments().in_parts(Collective::all_gather, in, out, shares), options);
}

Work CheckedGroup::all_gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                               const CallOptions& options) {
  const Shares shares = shares_from(Collective::all_gather, counts, size());
  return begin(arguments().in_parts(Collective::all_gather, in, out, shares), options);
}

Work CheckedGroup::gather(ConstBuffer in, Buffer out, int root, const CallOptions& options) {
  const Shares shares = Shares::equal(size(), in.count);
  return begin(arguments().in_parts(Collective::gather, in, out, shares, root), options);
}

Work CheckedGroup::gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                           int root, const CallOptions& options) {
  const Shares shares = shares_from(Collective::gather, counts, size());
  return begin(arguments().in_parts(Collective::gather, in, out, shares, root), options);
}

Work CheckedGroup::scatter(ConstBuffer in, Buffer out, int root, const CallOptions& options) {
  const Shares shares = Shares::equal(size(), out.count);
  return begin(arguments().in_parts(Collective::scatter, in, out, shares, root), options);
}

Work CheckedGroup::scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                            int root, const CallOptions& options) {
  const Shares shares = shares_from(Collective::scatter, counts, size());
  return begin(arguments().in_parts(Collective::scatter, in, out, shares, root), options);
}

Work CheckedGroup::reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op,
                                  const CallOptions& options) {
  const Shares shares = Shares::equal(size(), out.count);
  return begin_sum(arguments().in_parts(Collective::reduce_scatter, in, out, shares, -1, op),
                   options);
}

Work CheckedGroup::reduce_scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                                   ReduceOp op, const CallOptions& options) {
  const Shares shares = shares_from(Collective::reduce_scatter, counts, size());
  return begin_sum(arguments().in_parts(Collective::reduce_scatter, in, out, shares, -1, op),
                   options);
}

Work CheckedGroup::all_to_all(ConstBuffer in, Buffer out, const CallOptions& options) {
  return begin(arguments().all_to_all(in, out), options);
}

Work CheckedGroup::all_to_allv(ConstBuffer in, std::span<const std::size_t> in_counts, Buffer out,
                               std::span<const std::size_t> out_counts,
                               const CallOptions& options) {
  const Request request = arguments().all_to_allv(in, in_counts, out, out_counts);
  if (!options.equal_counts || !staged::on_device(request)) return begin(request, options);
  const Request in_equal_parts = arguments().all_to_all(in, out);
  return begin(request, options, &in_equal_parts);
}

Work CheckedGroup::barrier(const CallOptions& options) {
  return begin(arguments().barrier(), options);
}

Work CheckedGroup::send(ConstBuffer data, int peer, std::uint32_t tag, const CallOptions& options) {
  return begin(arguments().send(data, peer, tag), options);
}

Work CheckedGroup::recv(Buffer data, int peer, std::uint32_t tag, const CallOptions& options) {
  return begin(arguments().recv(data, peer, tag), options);
}

}  // namespace mccl
