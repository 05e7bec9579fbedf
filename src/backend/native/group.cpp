#include "backend/native/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/direct/agreement.h"
#include "backend/mpi/carrier.h"
#include "mccl/error.h"
#include "schedule/choose.h"

namespace mccl::native {
namespace {

/// Number of entries at which `faster_` is emptied before the next one is added. A training program
/// uses fewer pairs of collective and count.
constexpr std::size_t kMostRemembered = 256;

/// Returns the ranks of `parent` that passed this color, ordered by key and then by rank. Returns
/// an empty list for a negative color. All ranks of `parent` must call it.
std::vector<int> ranks_of_color(Group& parent, int color, int key) {
  struct Choice {
    std::int32_t color;
    std::int32_t key;
  };
  const std::vector<Choice> all = direct::gather(parent, Choice{color, key});
  std::vector<int> chosen;
  for (int rank = 0; rank < parent.size() && color >= 0; ++rank) {
    if (all[static_cast<std::size_t>(rank)].color == color) chosen.push_back(rank);
  }
  std::ranges::stable_sort(chosen, {},
                           [&](int rank) { return all[static_cast<std::size_t>(rank)].key; });
  return chosen;
}

}  // namespace

NativeGroup::NativeGroup(std::shared_ptr<engine::Engine> engine,
                         std::shared_ptr<engine::GroupState> state)
    : engine_(std::move(engine)), state_(std::move(state)) {}

NativeGroup::~NativeGroup() {
  if (path_) path_->abort();
  if (ordered_) ordered_->close();
  engine_->close_group(state_);
}

void NativeGroup::set_up(std::shared_ptr<const GroupSetup> setup) {
  setup_ = std::move(setup);
  if (setup_->give_path) setup_->give_path(*this, state_->timeout());
}

void NativeGroup::carry_by_mpi(std::chrono::milliseconds patience) {
  if (size() == 1) return;
  std::vector<int> members;
  for (const WorldRank member : state_->membership().members) members.push_back(member.number());
  // A group that is watched fails as soon as a member dies, even while no call is pending.
  state_->watch_failure([](const engine::Failure&) {});
  auto carrier = mpi::make_carrier(*this, members, patience, engine_);
  state_->watch_failure(nullptr);
  carrier_ = carrier.get();
  engine_->carry_by(state_, std::move(carrier));
}

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

/// Does not apply the group's codec to small data, for which rounding takes as long as sending. A
/// codec in the call's own options has no such minimum size.
Coding NativeGroup::coding_of(const Request& request, const CallOptions& options) const {
  if (carrier_) {
    refuse_codec(options.compression);
    return {};
  }
  if (options.compression) check_codec(request.call, *options.compression);
  const Compression& wanted = options.compression.value_or(state_->compression());
  if (wanted.codec == Codec::none || state_->is_one_node() || size() < 2) return {};
  if (!may_be_coded(request.call.collective, request.call.dtype, request.call.kind)) return {};
  const std::size_t bytes = std::max(request.in.bytes(), request.out.bytes());
  if (!options.compression && bytes < state_->least_coded_bytes()) return {};
  const Coding coding = mccl::coding_of(wanted, state_->node_count());
  const bool fits = coding.block_bytes(Coded::sum) <= state_->chunk_bytes();
  if (!fits || !shortens(coding, request.call.dtype)) return {};
  return wanted.if_faster && !is_faster(request, coding) ? Coding() : coding;
}

/// True if the cost model predicts that the codec makes the call faster. All ranks get the same
/// result, because they use the same facts. Returns false for types other than f32, as
/// Compression::if_faster promises.
bool NativeGroup::is_faster(const Request& request, const Coding& coding) const {
  if (request.call.dtype != DType::f32) return false;
  const std::lock_guard lock(mutex_);
  const auto key = std::pair(request.call.collective, request.call.count);
  const auto found = faster_.find(key);
  if (found != faster_.end()) return found->second;
  schedule::Problem problem;
  problem.collective = request.call.collective;
  problem.size = size();
  problem.coding = coding;
  if (request.even || !request.counts.empty()) {
    const auto ranks = static_cast<std::size_t>(size());
    problem.counts.assign(ranks, request.call.count / ranks);
  } else {
    problem.count = request.call.count;
  }
  if (faster_.size() >= kMostRemembered) faster_.clear();
  return faster_[key] =
             schedule::is_faster_coded(problem, size_of(request.call.dtype), state_->assumed());
}

/// Warns only for topk, which drops most of the data. Codecs that round every element lose little.
void NativeGroup::warn_of_loss(const Coding& coding, const CallOptions& options) {
  if (coding.codec != Codec::topk || options.left_out.data || rank() != 0) return;
  if (warned_.exchange(true)) return;
  engine_->log().warn(
      "sums of group '{}' use topk, and the elements that topk leaves out are lost: use "
      "mccl.hooks.compress, or CallOptions::left_out, to keep them for the next sum",
      name());
}

Work NativeGroup::start(const Request& request, const CallOptions& options) {
  engine::Task task(request);
  if (options.site) task.call.site = options.site->number;
  const bool is_message = !is_collective(request.call);
  if (carrier_ && is_message) carrier_->check(task);
  if (!is_message) task.unit = setup_->unit;
  // Messages are never compressed. For a message, coding_of() only refuses a codec in the options.
  if (options.compression || (!is_message && state_->compression().codec != Codec::none)) {
    task.call.coding = coding_of(request, options);
    warn_of_loss(task.call.coding, options);
    if (task.call.coding) task.left_out = static_cast<std::byte*>(options.left_out.data);
  }
  if (coalescing_threads_.load(std::memory_order_relaxed) != 0) {
    std::lock_guard lock(mutex_);
    const auto found = coalescing_.find(std::this_thread::get_id());
    if (found != coalescing_.end()) {
      found->second.push_back(operation(std::move(task), options));
      found->second.back()->held_back = true;
      return Work(found->second.back());
    }
  }
  if (options.caller_waits || request.call.collective == Collective::send) {
    OperationPtr begun;
    if (engine_->run_at_once(state_, task, timeout_of(options), begun) != engine::AtOnce::no)
      return begun ? Work(std::move(begun)) : Work();
  }
  const OperationPtr submitted = operation(std::move(task), options);
  engine_->submit({&submitted, 1});
  return Work(submitted);
}

void NativeGroup::begin_batch() {
  std::lock_guard lock(mutex_);
  if (!coalescing_.emplace(std::this_thread::get_id(), std::vector<OperationPtr>()).second) {
    throw InvalidArgument("begin_coalescing: this thread has already begun a batch; end it first");
  }
  ++coalescing_threads_;
}

bool NativeGroup::batch_is_open() const {
  if (coalescing_threads_.load(std::memory_order_relaxed) == 0) return false;
  const std::lock_guard lock(mutex_);
  return coalescing_.contains(std::this_thread::get_id());
}

Work NativeGroup::end_batch() {
  std::vector<OperationPtr> operations;
  {
    std::lock_guard lock(mutex_);
    const auto found = coalescing_.find(std::this_thread::get_id());
    if (found == coalescing_.end()) {
      throw InvalidArgument("end_coalescing: this thread has not begun a batch");
    }
    operations = std::move(found->second);
    coalescing_.erase(found);
    --coalescing_threads_;
  }
  if (operations.empty()) return {};
  Work all;
  std::vector<OperationPtr> ended;
  try {
    ended.reserve(operations.size());
    all = Work::all_of(std::vector<Work>(operations.begin(), operations.end()));
  } catch (const std::bad_alloc&) {
    // Memory has run out, so no operation starts. The Work of each operation reports this error.
    const std::exception_ptr error = std::current_exception();
    for (const OperationPtr& each : operations) {
      for (const Work::Callback& callback : each->finish(error)) callback(error);
    }
    throw;
  }
  run_at_once(operations, ended);
  if (!operations.empty()) engine_->submit(operations);
  // Callbacks run last: they may make calls, which must not overtake the calls of the batch.
  engine_->end_at_once(ended);
  return all;
}

/// Runs the messages of a batch that can run on this thread, and removes them from `operations`.
/// Moves messages that have ended to `ended`, which has capacity for them. Sends run before
/// receives, because a peer may send its message only after it has received one from this rank.
/// Messages in one direction stay in order.
void NativeGroup::run_at_once(std::vector<OperationPtr>& operations,
                              std::vector<OperationPtr>& ended) {
  using engine::AtOnce;
  const auto is_message = [](const OperationPtr& each) { return !is_collective(each->call); };
  if (!std::all_of(operations.begin(), operations.end(), is_message)) return;
  for (const Collective direction : {Collective::send, Collective::recv}) {
    for (auto each = operations.begin(); each != operations.end();) {
      if ((*each)->call.collective != direction) {
        ++each;
        continue;
      }
      if (direction == Collective::recv && !(*each)->caller_waits) return;
      const AtOnce result = engine_->run_at_once(*each);
      if (result == AtOnce::no) return;
      if (result == AtOnce::whole) ended.push_back(*each);
      each = operations.erase(each);
    }
  }
}

/// Ends with a barrier, so that every member has created its new group when split() returns.
/// Otherwise a call of the new group could time out while it waits for a member that has not
/// created the group yet.
std::shared_ptr<Group> NativeGroup::split(int color, int key) {
  std::vector<int> chosen = ranks_of_color(*this, color, key);
  std::shared_ptr<NativeGroup> part;
  try {
    part = make_part(color, std::move(chosen));
  } catch (const std::exception& error) {
    abort(error.what());
    throw;
  }
  barrier({.caller_waits = true}).wait();
  return part;
}

/// Makes the new group that split() returns. `chosen` are its members, as ranks of this group.
/// Returns null for a negative color.
std::shared_ptr<NativeGroup> NativeGroup::make_part(int color, std::vector<int> chosen) {
  int number = 0;
  {
    std::lock_guard lock(mutex_);
    number = splits_++;
  }
  if (color < 0) {
    split_path(nullptr, color, 0);
    return nullptr;
  }
  const auto& members = state_->membership().members;
  for (int& member : chosen) member = members[GroupRank(member)].number();
  auto part = make_child(fmt::format("{}/split {} color {}", name(), number, color), chosen);
  split_path(part.get(), color, part->rank());
  return part;
}

/// Makes a group with this group's timeout, codec and setup. `members` are ranks of the job.
std::shared_ptr<NativeGroup> NativeGroup::make_child(const std::string& name,
                                                     const std::vector<int>& members) {
  auto child = std::make_shared<NativeGroup>(engine_, name, members, state_->timeout(),
                                             state_->compression());
  child->set_up(setup_);
  return child;
}

std::shared_ptr<Group> NativeGroup::shrink(std::optional<std::chrono::milliseconds> timeout) {
  if (carrier_) {
    throw InvalidArgument(fmt::format(
        "shrink of group '{}': MPI carries the calls of this group (MCCL_BACKEND=mpi), and MPI "
        "cannot continue after the death of a rank; use MCCL_BACKEND=native",
        name()));
  }
  const auto [ranks, round] = engine_->survivors_of(state_, timeout.value_or(state_->timeout()));
  return make_child(fmt::format("{}/shrink {}", name(), round), ranks);
}

}  // namespace mccl::native
