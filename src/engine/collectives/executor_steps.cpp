// The parts of Executor for steps that use the node's window (shared memory) and for steps of
// compressed sums.
#include <fmt/format.h>

#include <cstring>

#include "base/clock.h"
#include "engine/calls/failure.h"
#include "engine/collectives/compute.h"
#include "engine/collectives/executor.h"
#include "kernels/codec/codec.h"
#include "kernels/copy.h"
#include "mccl/error.h"

namespace mccl::engine {

using node::Window;
using schedule::Space;
using schedule::Step;
using schedule::StepKind;

namespace {

/// True if neighbours copy a buffer of this size faster from the memory of this rank's process than
/// through the window, as measured with 2 and 8 ranks on 16 cores of a Xeon (docs/performance.md).
/// In a scatter, the readers then do the work of the root. In other calls, only two ranks gain:
/// with more of them, and with larger buffers, memory limits the rate, and the system's copies move
/// more bytes, because they read each line of the result before they write it.
bool pays_in_process(Collective collective, std::size_t neighbours, std::size_t bytes) {
  constexpr std::size_t kLeast = std::size_t{1} << 20, kMostOfPair = std::size_t{32} << 20;
  if (bytes < kLeast) return false;
  if (collective == Collective::scatter) return neighbours > 1;
  const bool copies = collective == Collective::all_gather || collective == Collective::all_to_all;
  return copies && neighbours == 1 && bytes < kMostOfPair;
}

/// True for memories that neighbours may read where they lie; see schedule::Readable.
bool may_be_read(Space space) { return space == Space::input || space == Space::output; }
/// The number of such a memory in node::Places.
std::size_t memory_number(Space space) { return space == Space::input ? 0 : 1; }

bool is_read_in_place(const Window& window, Space space) {
  return may_be_read(space) && window.is_read_in_place(memory_number(space));
}

}  // namespace

/// Runs a schedule without messages: window steps, copies and folds, one after another.
bool Executor::advance_in_order() {
  const std::vector<Step>& steps = plan_->schedule.steps;
  const std::size_t before = remaining_;
  while (remaining_ > 0) {
    const Step& step = steps[steps.size() - remaining_];
    if (!memory_.allows(step)) break;
    if (!is_window(step.kind)) {
      run(step);
    } else if (run_window_step(step)) {
      ++next_window_;
    } else {
      break;
    }
    --remaining_;
    memory_.ended(step);
  }
  return remaining_ != before || awaits_input();
}

bool Executor::run_window_steps() {
  bool moved = false;
  while (next_window_ < plan_->window.size()) {
    const std::uint32_t index = plan_->window[next_window_];
    if (!may_run(index) || !run_window_step(plan_->schedule.steps[index])) break;
    ++next_window_;
    complete(index);
    run_local_steps();
    moved = true;
  }
  return moved;
}

/// Runs the step. Returns false if it must wait for a neighbour.
bool Executor::run_window_step(const Step& step) {
  Window& window = *group_window_.window();
  switch (step.kind) {
    case StepKind::publish:
      if (!open_window()) return false;
      publish(step);
      return true;
    case StepKind::arrive:
      if (!open_window()) return false;
      window.arrive();
      return true;
    case StepKind::await:
      return wait_for(step);
    case StepKind::await_readers:
      return !window.is_read_in_place() || wait_for(step);
    case StepKind::read:
      read(step);
      return true;
    case StepKind::read_fold:
      read_fold(step);
      return true;
    default:
      return true;
  }
}

/// Opens the call's part of the window. Returns false if this rank must wait for a neighbour.
/// Throws MismatchError if a neighbour made a different call earlier. A rank compares its call only
/// with the calls of neighbours that it waits for. So a rank that only published in the earlier
/// call, like the root of a broadcast, detects the difference only here.
bool Executor::open_window() {
  Window& window = *group_window_.window();
  if (window.is_open()) return true;
  if (!window.open()) {
    const GroupRank late(window.late());
    if (!late.valid() || !is_lost(late)) return false;
    if (!window.open()) throw_lost(late);  // the neighbour may have arrived before it was lost
  }
  write_label(task_->call, window.label());
  if (const GroupRank strayed(window.strayed()); strayed.valid()) throw_divergence(strayed);
  return true;
}

bool Executor::is_lost(GroupRank rank) {
  return !channels_.at(transport::Purpose::collective, rank).lost.empty();
}

void Executor::throw_lost(GroupRank rank) {
  throw PeerError(gone_text(rank, channels_.at(transport::Purpose::collective, rank).lost));
}

bool Executor::wait_for(const Step& step) {
  if (step.peer != schedule::kAllPeers) return has_arrived(GroupRank(step.peer), step.mark);
  for (const GroupRank rank : group_window_.neighbours()) {
    if (!has_arrived(rank, step.mark)) return false;
  }
  return true;
}

bool Executor::has_arrived(GroupRank rank, std::uint32_t mark) {
  Window& window = *group_window_.window();
  if (!window.arrived(rank.number(), mark)) {
    if (!is_lost(rank)) return false;
    if (!window.arrived(rank.number(), mark)) throw_lost(rank);
  }
  if (!window.same_calls(rank.number())) throw_divergence(rank);
  return true;
}

void Executor::throw_divergence(GroupRank rank) const {
  const Window::Divergence found = group_window_.window()->divergence_of(rank.number());
  const Call theirs = call_of(found.theirs);
  if (!found.is_over) {
    throw MismatchError(fmt::format("rank {} calls {}{}", rank,
                                    describe_unlike(theirs, task_->call), instead_of(task_->call)));
  }
  const Call ours = call_of(found.ours);
  throw MismatchError(fmt::format("rank {} called {}, but rank {} called {}", rank,
                                  describe_unlike(theirs, ours), channels_.group().rank,
                                  describe(ours)));
}

/// Where the neighbours read this rank's input and output.
node::Places Executor::places() const {
  if (!plan_->schedule.reads_in_place) return {};
  const auto place_of = [this](Space space, const auto& buffer) -> std::uint64_t {
    if (!plan_->schedule.readable.holds(space)) return 0;
    if (const std::uint64_t place = group_window_.place_of(buffer.data, buffer.bytes()))
      return place;
    const bool in_process =
        group_window_.reads_processes() &&
        pays_in_process(task_->call.collective, group_window_.neighbours().size(),
                        buffer.bytes()) &&
        node::can_be_copied({static_cast<const std::byte*>(buffer.data), buffer.bytes()});
    return in_process ? node::kInProcess | reinterpret_cast<std::uintptr_t>(buffer.data) : 0;
  };
  node::Places places{};
  places[memory_number(Space::input)] = place_of(Space::input, task_->in);
  places[memory_number(Space::output)] = place_of(Space::output, task_->out);
  return places;
}

void Executor::publish(const Step& step) {
  const std::span<const std::byte> bytes = bytes_of(step.src);
  std::byte* place = group_window_.window()->own() + step.window * element_bytes_;
  task_->traffic.bytes_sent += bytes.size();
  if (is_read_in_place(*group_window_.window(), step.src.space)) return;
  if (bytes.size() < WriteChoice::kLeastBytes) {
    std::memcpy(place, bytes.data(), bytes.size());
    return;
  }
  const Clock::time_point begin = Clock::now();
  const WriteChoice::Way way = write_choice_.next(begin);
  if (way == WriteChoice::Way::past_cache) {
    kernels::copy_past_cache(place, bytes.data(), bytes.size());
  } else {
    std::memcpy(place, bytes.data(), bytes.size());
  }
  const Clock::time_point end = Clock::now();
  write_choice_.took(way, bytes.size(), seconds_between(begin, end), end);
  task_->traffic.network_s += seconds_between(begin, end);
}

/// Returns the data that the neighbour published in the window, or that lie in `region` of its
/// memory.
const std::byte* Executor::published_by(GroupRank rank, const Step& step,
                                        const schedule::Region& region) const {
  const Window& window = *group_window_.window();
  if (plan_->schedule.reads_in_place && may_be_read(region.space)) {
    const std::byte* const memory =
        window.memory_of(rank.number(), memory_number(region.space), region.offset * element_bytes_,
                         step.dst.count * element_bytes_);
    if (memory) return memory;
  }
  return window.published_by(rank.number()) + step.window * element_bytes_;
}

/// Returns false if the data of the step do not lie in the process of the neighbour; see
/// Window::copy_from_process().
bool Executor::copy_from_process(GroupRank rank, const Step& step, std::span<std::byte> to) const {
  return plan_->schedule.reads_in_place && may_be_read(step.src.space) &&
         group_window_.window()->copy_from_process(rank.number(), memory_number(step.src.space),
                                                   step.src.offset * element_bytes_, to);
}

/// Must be called after data were read for the step; see Window::require_kept().
void Executor::require_kept(GroupRank rank, const Step& step) const {
  if (plan_->schedule.reads_in_place && may_be_read(step.src.space))
    group_window_.window()->require_kept(rank.number(), memory_number(step.src.space));
}

void Executor::read(const Step& step) {
  const std::size_t bytes = step.dst.count * element_bytes_;
  const ScopedTimer timer(task_->traffic.network_s, bytes >= kTimedBytes);
  const GroupRank peer(step.peer);
  std::byte* const to = writable(step.dst);
  if (!copy_from_process(peer, step, {to, bytes})) {
    const std::byte* const published = published_by(peer, step, step.src);
    if (step.dst.space == Space::output) {
      copy_to_result(*task_, to, published, bytes);
    } else {
      std::memcpy(to, published, bytes);
    }
  }
  require_kept(peer, step);
  task_->traffic.bytes_received += bytes;
}

void Executor::read_fold(const Step& step) {
  const GroupRank mine = channels_.rank();
  bool own_is_in = false;
  operands_.clear();
  for (const GroupRank rank : group_window_.neighbours()) {
    if (rank > mine && !own_is_in) {
      operands_.push_back(readable(step.src));
      own_is_in = true;
    }
    operands_.push_back(published_by(rank, step, step.src));
  }
  if (!own_is_in) operands_.push_back(readable(step.src));
  fold(step);
  if (plan_->schedule.reads_in_place) {
    for (const GroupRank rank : group_window_.neighbours()) require_kept(rank, step);
  }
  task_->traffic.bytes_received +=
      step.dst.count * element_bytes_ * group_window_.neighbours().size();
}

void Executor::run_coded(const Step& step) {
  const Coding& coding = task_->call.coding;
  const DType dtype = task_->call.dtype;
  const std::size_t count = step.dst.count;
  const ScopedTimer timer(task_->reduce_s, count * element_bytes_ >= kTimedBytes);
  std::byte* const left =
      task_->left_out ? task_->left_out + step.element * element_bytes_ : nullptr;
  if (step.kind == StepKind::encode) {
    return kernels::encode(coding, Coded::contribution, dtype, readable(step.src), count,
                           writable(step.dst), left);
  }
  if (step.kind == StepKind::decode) {
    const bool good =
        kernels::decode(coding, Coded::sum, dtype, readable(step.src), count, writable(step.dst));
    if (!good) throw_undecodable(GroupRank(step.peer));
    return;
  }
  list_blocks(step);
  const int divisor = task_->call.kind == ReduceKind::avg ? channels_.size() : 1;
  const int wrong =
      step.dst.space == schedule::Space::sums
          ? kernels::fold_to_sum(coding, blocks_, count, divisor, writable(step.dst), dtype, left)
          : kernels::fold_to_elements(coding, blocks_, count, divisor, dtype, writable(step.dst));
  if (wrong >= 0) throw_undecodable(maker_of(step, wrong));
}

/// Fills blocks_ with the encoded contributions in rank order.
void Executor::list_blocks(const Step& step) {
  const std::size_t bytes = task_->call.coding.bytes(step.dst.count, Coded::contribution);
  const std::byte* const first = readable(step.src);
  blocks_.clear();
  for (std::size_t i = 0; i < step.operands; ++i) blocks_.push_back(first + i * bytes);
}

/// Returns the rank that encoded this operand. It is the sender of the last message into the
/// operand's memory, or this rank if there was no such message.
GroupRank Executor::maker_of(const Step& fold, int operand) const {
  const std::size_t block = task_->call.coding.block();
  const std::size_t stride = (fold.dst.count + block - 1) / block * block;
  const schedule::Region place{schedule::Space::coded,
                               fold.src.offset + static_cast<std::size_t>(operand) * stride,
                               fold.dst.count};
  const Step* const first = plan_->schedule.steps.data();
  for (const Step* step = &fold; step != first; --step) {
    if (step[-1].kind == StepKind::recv && step[-1].dst == place) return GroupRank(step[-1].peer);
  }
  return channels_.rank();
}

void Executor::throw_undecodable(GroupRank maker) const {
  throw CorruptionError(fmt::format(
      "rank {} sent data that is not valid in the codec {}: the memory of that rank or "
      "the network path from that rank is faulty; set MCCL_TRANSPORT_CRC=1 to find out which",
      maker, name_of(task_->call.coding.codec)));
}

}  // namespace mccl::engine
