#include "backend/native/group.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/backend.h"
#include "backend/native/check.h"
#include "backend/native/shares.h"
#include "mccl/error.h"

namespace mccl::native {
namespace {

bool is_collective(Collective call) { return call != Collective::send && call != Collective::recv; }

engine::Task task_of(Collective collective, DType dtype) {
  engine::Task task;
  task.call.collective = collective;
  task.call.dtype = dtype;
  task.input.dtype = task.output.dtype = dtype;
  return task;
}

}  // namespace

NativeGroup::NativeGroup(std::shared_ptr<engine::Engine> engine,
                         std::shared_ptr<engine::GroupState> state)
    : engine_(std::move(engine)), state_(std::move(state)) {}

NativeGroup::~NativeGroup() { engine_->close_group(state_); }

std::string NativeGroup::failure() const {
  return state_->failed() ? engine::describe(state_->failure()) : std::string();
}

NativeGroup::OperationPtr NativeGroup::operation(engine::Task task,
                                                 const CallOptions& options) const {
  auto operation = std::make_shared<engine::Operation>(std::move(task));
  operation->group = state_;
  operation->driver = engine_;
  operation->caller_waits = options.caller_waits;
  operation->deadline = engine::deadline_after(Clock::now(), timeout_of(options));
  return operation;
}

std::chrono::milliseconds NativeGroup::timeout_of(const CallOptions& options) const {
  return options.timeout.value_or(state_->timeout());
}

Work NativeGroup::submit(engine::Task&& task, const CallOptions& options) {
  if (coalescing_threads_.load(std::memory_order_relaxed) != 0) {
    std::lock_guard lock(mutex_);
    const auto found = coalescing_.find(std::this_thread::get_id());
    if (found != coalescing_.end()) {
      found->second.push_back(operation(std::move(task), options));
      found->second.back()->held_back = true;
      return Work(found->second.back());
    }
  }
  if (options.caller_waits && is_collective(task.call.collective)) {
    const auto at_once = engine_->run_at_once(state_, task, timeout_of(options));
    if (at_once.done) return {};
    if (at_once.begun) return Work(at_once.begun);
  }
  const OperationPtr submitted = operation(std::move(task), options);
  engine_->submit({&submitted, 1});
  return Work(submitted);
}

void NativeGroup::begin_coalescing() {
  std::lock_guard lock(mutex_);
  if (!coalescing_.emplace(std::this_thread::get_id(), std::vector<OperationPtr>()).second) {
    throw InvalidArgument("begin_coalescing: this thread has begun one already; end it first");
  }
  ++coalescing_threads_;
}

Work NativeGroup::end_coalescing() {
  std::vector<OperationPtr> operations;
  {
    std::lock_guard lock(mutex_);
    const auto found = coalescing_.find(std::this_thread::get_id());
    if (found == coalescing_.end()) {
      throw InvalidArgument("end_coalescing: this thread has not begun one");
    }
    operations = std::move(found->second);
    coalescing_.erase(found);
    --coalescing_threads_;
  }
  if (operations.empty()) return {};
  engine_->submit(operations);
  return Work::all_of(std::vector<Work>(operations.begin(), operations.end()));
}

Work NativeGroup::all_reduce(ConstBuffer in, Buffer out, ReduceOp op, const CallOptions& options) {
  constexpr Collective call = Collective::all_reduce;
  check_memory(call, "input", in);
  check_memory(call, "output", out);
  check_same_type(call, in, out);
  check_count(call, "output", out.count, in.count);
  check_reduction(call, in.dtype, op);
  engine::Task task = task_of(call, in.dtype);
  task.call.kind = op.kind;
  task.factor = op.factor;
  task.call.count = in.count;
  task.in_place = check_overlap(call, in, out, 0, 0);
  task.input = in;
  task.output = out;
  return submit(std::move(task), options);
}

Work NativeGroup::broadcast(Buffer data, int root, const CallOptions& options) {
  constexpr Collective call = Collective::broadcast;
  check_memory(call, "data", data);
  check_root(call, root, size());
  engine::Task task = task_of(call, data.dtype);
  task.call.root = root;
  task.call.count = data.count;
  task.in_place = true;
  task.input = data;
  task.output = data;
  return submit(std::move(task), options);
}

Work NativeGroup::reduce(ConstBuffer in, Buffer out, ReduceOp op, int root,
                         const CallOptions& options) {
  constexpr Collective call = Collective::reduce;
  check_memory(call, "input", in);
  check_root(call, root, size());
  check_reduction(call, in.dtype, op);
  engine::Task task = task_of(call, in.dtype);
  task.call.kind = op.kind;
  task.factor = op.factor;
  task.call.root = root;
  task.call.count = in.count;
  task.input = in;
  if (root == rank()) {
    check_memory(call, "output", out);
    check_same_type(call, in, out);
    check_count(call, "output", out.count, in.count);
    task.in_place = check_overlap(call, in, out, 0, 0);
    task.output = out;
  }
  return submit(std::move(task), options);
}

Work NativeGroup::all_gather(ConstBuffer in, Buffer out, const CallOptions& options) {
  return submit(gather_to_all(in, out, Shares::equal(size(), in.count)), options);
}

Work NativeGroup::all_gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                              const CallOptions& options) {
  check_counts(Collective::all_gather, counts, size());
  return submit(gather_to_all(in, out, Shares::of(counts)), options);
}

engine::Task NativeGroup::gather_to_all(ConstBuffer in, Buffer out, const Shares& shares) const {
  constexpr Collective call = Collective::all_gather;
  check_memory(call, "input", in);
  check_memory(call, "output", out);
  check_same_type(call, in, out);
  check_shares(call, shares.counts().empty() ? "input" : "counts", shares, in.dtype);
  check_count(call, "input", in.count, shares.at(rank()));
  check_count(call, "output", out.count, shares.total());
  engine::Task task = task_of(call, in.dtype);
  task.call.count = out.count;
  shares.tell(task);
  task.in_place = check_overlap(call, in, out, 0, shares.before(rank()));
  task.input = in;
  task.output = out;
  return task;
}

Work NativeGroup::gather(ConstBuffer in, Buffer out, int root, const CallOptions& options) {
  return submit(gather_to(in, out, Shares::equal(size(), in.count), root), options);
}

Work NativeGroup::gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, int root,
                          const CallOptions& options) {
  check_counts(Collective::gather, counts, size());
  return submit(gather_to(in, out, Shares::of(counts), root), options);
}

engine::Task NativeGroup::gather_to(ConstBuffer in, Buffer out, const Shares& shares,
                                    int root) const {
  constexpr Collective call = Collective::gather;
  check_memory(call, "input", in);
  check_root(call, root, size());
  check_shares(call, shares.counts().empty() ? "input" : "counts", shares, in.dtype);
  check_count(call, "input", in.count, shares.at(rank()));
  engine::Task task = task_of(call, in.dtype);
  task.call.root = root;
  task.call.count = shares.total();
  shares.tell(task);
  task.input = in;
  if (root == rank()) {
    check_memory(call, "output", out);
    check_same_type(call, in, out);
    check_count(call, "output", out.count, shares.total());
    task.in_place = check_overlap(call, in, out, 0, shares.before(rank()));
    task.output = out;
  }
  return task;
}

Work NativeGroup::scatter(ConstBuffer in, Buffer out, int root, const CallOptions& options) {
  return submit(scatter_from(in, out, Shares::equal(size(), out.count), root), options);
}

Work NativeGroup::scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                           int root, const CallOptions& options) {
  check_counts(Collective::scatter, counts, size());
  return submit(scatter_from(in, out, Shares::of(counts), root), options);
}

engine::Task NativeGroup::scatter_from(ConstBuffer in, Buffer out, const Shares& shares,
                                       int root) const {
  constexpr Collective call = Collective::scatter;
  check_memory(call, "output", out);
  check_root(call, root, size());
  check_shares(call, shares.counts().empty() ? "output" : "counts", shares, out.dtype);
  check_count(call, "output", out.count, shares.at(rank()));
  engine::Task task = task_of(call, out.dtype);
  task.call.root = root;
  task.call.count = shares.total();
  shares.tell(task);
  task.output = out;
  if (root == rank()) {
    check_memory(call, "input", in);
    check_same_type(call, in, out);
    check_count(call, "input", in.count, shares.total());
    task.in_place = check_overlap(call, in, out, shares.before(rank()), 0);
    task.input = in;
  }
  return task;
}

Work NativeGroup::reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op,
                                 const CallOptions& options) {
  return submit(reduce_to_parts(in, out, Shares::equal(size(), out.count), op), options);
}

Work NativeGroup::reduce_scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                                  ReduceOp op, const CallOptions& options) {
  check_counts(Collective::reduce_scatter, counts, size());
  return submit(reduce_to_parts(in, out, Shares::of(counts), op), options);
}

engine::Task NativeGroup::reduce_to_parts(ConstBuffer in, Buffer out, const Shares& shares,
                                          ReduceOp op) const {
  constexpr Collective call = Collective::reduce_scatter;
  check_memory(call, "input", in);
  check_memory(call, "output", out);
  check_same_type(call, in, out);
  check_shares(call, shares.counts().empty() ? "output" : "counts", shares, in.dtype);
  check_count(call, "input", in.count, shares.total());
  check_count(call, "output", out.count, shares.at(rank()));
  check_reduction(call, in.dtype, op);
  engine::Task task = task_of(call, in.dtype);
  task.call.kind = op.kind;
  task.factor = op.factor;
  task.call.count = in.count;
  shares.tell(task);
  task.in_place = check_overlap(call, in, out, shares.before(rank()), 0);
  task.input = in;
  task.output = out;
  return task;
}

Work NativeGroup::all_to_all(ConstBuffer in, Buffer out, const CallOptions& options) {
  const std::size_t ranks = static_cast<std::size_t>(size());
  if (in.count % ranks != 0) {
    throw InvalidArgument(fmt::format(
        "all_to_all: input has {} elements, which {} ranks do not divide; all_to_allv takes any",
        in.count, ranks));
  }
  const Shares shares = Shares::equal(size(), in.count / ranks);
  engine::Task task = exchange(in, shares, out, shares);
  task.call.count = in.count;
  return submit(std::move(task), options);
}

Work NativeGroup::all_to_allv(ConstBuffer in, std::span<const std::size_t> in_counts, Buffer out,
                              std::span<const std::size_t> out_counts, const CallOptions& options) {
  check_counts(Collective::all_to_all, in_counts, size());
  check_counts(Collective::all_to_all, out_counts, size());
  engine::Task task = exchange(in, Shares::of(in_counts), out, Shares::of(out_counts));
  task.call.counts_hash = engine::kOwnCounts;
  task.recv_counts.assign(out_counts.begin(), out_counts.end());
  return submit(std::move(task), options);
}

engine::Task NativeGroup::exchange(ConstBuffer in, const Shares& given, Buffer out,
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
  engine::Task task = task_of(call, in.dtype);
  given.tell(task);
  task.input = in;
  task.output = out;
  return task;
}

Work NativeGroup::barrier(const CallOptions& options) {
  return submit(task_of(Collective::barrier, DType::u8), options);
}

Work NativeGroup::send(ConstBuffer data, int peer, std::uint32_t tag, const CallOptions& options) {
  check_memory(Collective::send, "data", data);
  check_peer(Collective::send, peer, rank(), size(), false);
  engine::Task task = task_of(Collective::send, data.dtype);
  task.call.peer = peer;
  task.call.tag = tag;
  task.call.count = data.count;
  task.input = data;
  return submit(std::move(task), options);
}

Work NativeGroup::recv(Buffer data, int peer, std::uint32_t tag, const CallOptions& options) {
  check_memory(Collective::recv, "data", data);
  check_peer(Collective::recv, peer, rank(), size(), true);
  engine::Task task = task_of(Collective::recv, data.dtype);
  task.call.peer = peer;
  task.call.tag = tag;
  task.call.count = data.count;
  task.output = data;
  return submit(std::move(task), options);
}

std::shared_ptr<Group> NativeGroup::split(int color, int key) {
  int number = 0;
  {
    std::lock_guard lock(mutex_);
    number = splits_++;
  }
  std::vector<int> chosen = ranks_of_color(*this, color, key);
  if (color < 0) return nullptr;
  const auto& members = state_->membership().members;
  for (int& member : chosen) member = members[GroupRank(member)].number();
  return std::make_shared<NativeGroup>(
      engine_, engine_->make_group(fmt::format("{}/split {} color {}", name(), number, color),
                                   chosen, state_->timeout()));
}

}  // namespace mccl::native
