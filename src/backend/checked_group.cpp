#include "backend/checked_group.h"

#include <fmt/format.h>

#include <cstring>

#include "backend/check.h"
#include "backend/direct/call.h"
#include "device/registry.h"
#include "mccl/error.h"

namespace mccl {
namespace {

Request request_of(Collective collective, DType dtype) {
  Request request;
  request.collective = collective;
  request.dtype = dtype;
  request.in.dtype = request.out.dtype = dtype;
  return request;
}

/// Returns the request as if its memory were on the host. Used in a failed group, where a call only
/// reports the failure and does not touch its memory.
Request without_devices(const Request& request) {
  Request told = request;
  told.in.device = told.out.device = Device{};
  return told;
}

}  // namespace

Work CheckedGroup::begin(const Request& request, const CallOptions& options) {
  const bool is_shared =
      !staged::on_device(request) && (request.in.allocation || request.out.allocation);
  if (stages_always_ && is_shared) return line().enqueue(staged::as_the_gpu_sees(request), options);
  if (path_ && is_collective(request.collective) && !batch_is_open()) {
    if (staged::on_device(request) && path_->has_to_meet()) refuse_capture(request, options);
    path_->comes(request, timeout_of(options), options.caller_waits || options.may_meet);
  }
  if (!staged::needs_stage(request, options)) {
    const staged::Line* const line = line_if_any_.load(std::memory_order_acquire);
    if (!line || !line->is_busy()) return start(request, options);
  } else if (goes_directly(request, options)) {
    return begin_directly(request, options);
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
                  name_of(request.collective), name()));
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
  const auto call = std::make_shared<direct::Call>(
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
  constexpr Collective call = Collective::all_reduce;
  check_memory(call, "input", in);
  check_memory(call, "output", out);
  check_same_type(call, in, out);
  check_count(call, "output", out.count, in.count);
  check_reduction(call, in.dtype, op);
  Request request = request_of(call, in.dtype);
  request.op = op;
  request.count = in.count;
  request.in_place = check_overlap(call, in, out, 0, 0);
  request.in = in;
  request.out = out;
  return begin_sum(request, options);
}

/// Fills left_out with zeros, which remain unless the engine writes to it.
Work CheckedGroup::begin_sum(const Request& request, const CallOptions& options) {
  const Buffer& left = options.left_out;
  if (left.data) {
    if (staged::on_device(request) || left.device.kind != DeviceKind::cpu) {
      throw InvalidArgument(fmt::format(
          "{}: left_out requires host memory; place input, output and left_out on the host",
          name_of(request.collective)));
    }
    check_left_out(request.collective, request.in, request.out, left);
    // Before the fence has passed, the memory must not be touched. Call::clear_left_out() clears it
    // afterwards.
    if (left.count > 0 && !options.fence) std::memset(left.data, 0, left.bytes());
  }
  return begin(request, options);
}

std::size_t CheckedGroup::bytes_to_sum(std::size_t count, DType dtype, ReduceOp op,
                                       const CallOptions& options) const {
  Request request = request_of(Collective::all_reduce, dtype);
  request.op = op;
  request.in.count = request.out.count = count;
  const Coding coding = coding_of(request, options);
  return coding ? coding.bytes(count, Coded::contribution) : count * size_of(dtype);
}

Work CheckedGroup::broadcast(Buffer data, int root, const CallOptions& options) {
  constexpr Collective call = Collective::broadcast;
  check_memory(call, "data", data);
  check_root(call, root, size());
  Request request = request_of(call, data.dtype);
  request.root = root;
  request.count = data.count;
  request.in_place = true;
  request.in = data;
  request.out = data;
  return begin(request, options);
}

Work CheckedGroup::reduce(ConstBuffer in, Buffer out, ReduceOp op, int root,
                          const CallOptions& options) {
  constexpr Collective call = Collective::reduce;
  check_memory(call, "input", in);
  check_root(call, root, size());
  check_reduction(call, in.dtype, op);
  Request request = request_of(call, in.dtype);
  request.op = op;
  request.root = root;
  request.count = in.count;
  request.in = in;
  if (root == rank()) {
    check_memory(call, "output", out);
    check_same_type(call, in, out);
    check_count(call, "output", out.count, in.count);
    request.in_place = check_overlap(call, in, out, 0, 0);
    request.out = out;
  }
  return begin(request, options);
}

Work CheckedGroup::all_gather(ConstBuffer in, Buffer out, const CallOptions& options) {
  return begin(gather_to_all(in, out, Shares::equal(size(), in.count)), options);
}

Work CheckedGroup::all_gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                               const CallOptions& options) {
  check_counts(Collective::all_gather, counts, size());
  return begin(gather_to_all(in, out, Shares::of(counts)), options);
}

Request CheckedGroup::gather_to_all(ConstBuffer in, Buffer out, const Shares& shares) const {
  constexpr Collective call = Collective::all_gather;
  check_memory(call, "input", in);
  check_memory(call, "output", out);
  check_same_type(call, in, out);
  check_shares(call, shares.counts().empty() ? "input" : "counts", shares, in.dtype);
  check_count(call, "input", in.count, shares.at(rank()));
  check_count(call, "output", out.count, shares.total());
  Request request = request_of(call, in.dtype);
  request.count = out.count;
  request.tell(shares);
  request.in_place = check_overlap(call, in, out, 0, shares.before(rank()));
  request.in = in;
  request.out = out;
  return request;
}

Work CheckedGroup::gather(ConstBuffer in, Buffer out, int root, const CallOptions& options) {
  return begin(gather_to(in, out, Shares::equal(size(), in.count), root), options);
}

Work CheckedGroup::gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                           int root, const CallOptions& options) {
  check_counts(Collective::gather, counts, size());
  return begin(gather_to(in, out, Shares::of(counts), root), options);
}

Request CheckedGroup::gather_to(ConstBuffer in, Buffer out, const Shares& shares, int root) const {
  constexpr Collective call = Collective::gather;
  check_memory(call, "input", in);
  check_root(call, root, size());
  check_shares(call, shares.counts().empty() ? "input" : "counts", shares, in.dtype);
  check_count(call, "input", in.count, shares.at(rank()));
  Request request = request_of(call, in.dtype);
  request.root = root;
  request.count = shares.total();
  request.tell(shares);
  request.in = in;
  if (root == rank()) {
    check_memory(call, "output", out);
    check_same_type(call, in, out);
    check_count(call, "output", out.count, shares.total());
    request.in_place = check_overlap(call, in, out, 0, shares.before(rank()));
    request.out = out;
  }
  return request;
}

Work CheckedGroup::scatter(ConstBuffer in, Buffer out, int root, const CallOptions& options) {
  return begin(scatter_from(in, out, Shares::equal(size(), out.count), root), options);
}

Work CheckedGroup::scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                            int root, const CallOptions& options) {
  check_counts(Collective::scatter, counts, size());
  return begin(scatter_from(in, out, Shares::of(counts), root), options);
}

Request CheckedGroup::scatter_from(ConstBuffer in, Buffer out, const Shares& shares,
                                   int root) const {
  constexpr Collective call = Collective::scatter;
  check_memory(call, "output", out);
  check_root(call, root, size());
  check_shares(call, shares.counts().empty() ? "output" : "counts", shares, out.dtype);
  check_count(call, "output", out.count, shares.at(rank()));
  Request request = request_of(call, out.dtype);
  request.root = root;
  request.count = shares.total();
  request.tell(shares);
  request.out = out;
  if (root == rank()) {
    check_memory(call, "input", in);
    check_same_type(call, in, out);
    check_count(call, "input", in.count, shares.total());
    request.in_place = check_overlap(call, in, out, shares.before(rank()), 0);
    request.in = in;
  }
  return request;
}

Work CheckedGroup::reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op,
                                  const CallOptions& options) {
  return begin_sum(reduce_to_parts(in, out, Shares::equal(size(), out.count), op), options);
}

Work CheckedGroup::reduce_scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                                   ReduceOp op, const CallOptions& options) {
  check_counts(Collective::reduce_scatter, counts, size());
  return begin_sum(reduce_to_parts(in, out, Shares::of(counts), op), options);
}

Request CheckedGroup::reduce_to_parts(ConstBuffer in, Buffer out, const Shares& shares,
                                      ReduceOp op) const {
  constexpr Collective call = Collective::reduce_scatter;
  check_memory(call, "input", in);
  check_memory(call, "output", out);
  check_same_type(call, in, out);
  check_shares(call, shares.counts().empty() ? "output" : "counts", shares, in.dtype);
  check_count(call, "input", in.count, shares.total());
  check_count(call, "output", out.count, shares.at(rank()));
  check_reduction(call, in.dtype, op);
  Request request = request_of(call, in.dtype);
  request.op = op;
  request.count = in.count;
  request.tell(shares);
  request.in_place = check_overlap(call, in, out, shares.before(rank()), 0);
  request.in = in;
  request.out = out;
  return request;
}

Work CheckedGroup::all_to_all(ConstBuffer in, Buffer out, const CallOptions& options) {
  const std::size_t ranks = static_cast<std::size_t>(size());
  if (in.count % ranks != 0) {
    throw InvalidArgument(fmt::format(
        "all_to_all: input has {} elements, which is not a multiple of {} ranks; use all_to_allv",
        in.count, ranks));
  }
  const Shares shares = Shares::equal(size(), in.count / ranks);
  Request request = exchange(in, shares, out, shares);
  request.count = in.count;
  return begin(request, options);
}

Work CheckedGroup::all_to_allv(ConstBuffer in, std::span<const std::size_t> in_counts, Buffer out,
                               std::span<const std::size_t> out_counts,
                               const CallOptions& options) {
  check_counts(Collective::all_to_all, in_counts, size());
  check_counts(Collective::all_to_all, out_counts, size());
  Request request = exchange(in, Shares::of(in_counts), out, Shares::of(out_counts));
  request.counts = in_counts;
  request.out_counts = out_counts;
  request.own_counts = true;
  return begin(request, options);
}

Request CheckedGroup::exchange(ConstBuffer in, const Shares& given, Buffer out,
                               const Shares& taken) const {
  constexpr Collective call = Collective::all_to_all;
  check_memory(call, "input", in);
  check_memory(call, "output", out);
  check_same_type(call, in, out);
  check_shares(call, "in_counts", given, in.dtype);
  check_shares(call, "out_counts", taken, out.dtype);
  check_count(call, "input", in.count, given.total());
  check_count(call, "output", out.count, taken.total());
  if (in.data == out.data && in.count > 0 && out.count > 0) {
    throw InvalidArgument(
        "all_to_all: input and output are the same memory; it has no in-place form");
  }
  check_overlap(call, in, out, 0, 0);
  check_count(call, "this rank's own part of the output", taken.at(rank()), given.at(rank()));
  Request request = request_of(call, in.dtype);
  request.tell(given);
  request.in = in;
  request.out = out;
  return request;
}

Work CheckedGroup::barrier(const CallOptions& options) {
  return begin(request_of(Collective::barrier, DType::u8), options);
}

Work CheckedGroup::send(ConstBuffer data, int peer, std::uint32_t tag, const CallOptions& options) {
  check_memory(Collective::send, "data", data);
  check_peer(Collective::send, peer, rank(), size(), false);
  Request request = request_of(Collective::send, data.dtype);
  request.peer = peer;
  request.tag = tag;
  request.count = data.count;
  request.in = data;
  return begin(request, options);
}

Work CheckedGroup::recv(Buffer data, int peer, std::uint32_t tag, const CallOptions& options) {
  check_memory(Collective::recv, "data", data);
  check_peer(Collective::recv, peer, rank(), size(), true);
  Request request = request_of(Collective::recv, data.dtype);
  request.peer = peer;
  request.tag = tag;
  request.count = data.count;
  request.out = data;
  return begin(request, options);
}

}  // namespace mccl
