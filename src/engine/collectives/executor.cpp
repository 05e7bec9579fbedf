#include "engine/collectives/executor.h"

#include <fmt/format.h>

#include <exception>
#include <thread>
#include <utility>

#include "engine/calls/failure.h"
#include "engine/collectives/compute.h"
#include "mccl/error.h"

namespace mccl::engine {
namespace {

using schedule::Region;
using schedule::Space;
using schedule::Step;
using schedule::StepKind;

/// Approximate limit of the bytes that one call of advance() sends to a peer, or receives on a lane
/// (link). Moving them takes some milliseconds.
constexpr std::uint64_t kTurnBytes = std::uint64_t{16} << 20;

}  // namespace

void Executor::begin(Task& task, const Plan& plan) {
  task_ = &task;
  plan_ = &plan;
  element_bytes_ = size_of(task.call.dtype);
  const schedule::Schedule& schedule = plan_->schedule;
  remaining_ = schedule.steps.size();
  next_window_ = 0;
  memory_.begin(task, schedule);
  if (schedule.arrivals > 0) {
    group_window_.window()->begin(schedule.arrivals, schedule.window_count * element_bytes_,
                                  fingerprint_of(task.call), places());
  }
  if (!schedule.in_order) {
    waits_ = schedule.waits;
    received_.assign(schedule.steps.size(), 0);
    local_ = plan_->first_local;
    early_.clear();
    peers_.clear();
    for (const PeerPlan& peer : plan_->peers) peers_.push_back({&peer});
  }
  const Coding& coding = task_->call.coding;
  coded_begin_ = schedule.scratch_count * element_bytes_;
  sums_begin_ = coded_begin_ + coding.bytes(schedule.coded_count, Coded::contribution);
  const std::size_t scratch_bytes = sums_begin_ + coding.bytes(schedule.sums_count, Coded::sum);
  if (scratch_.size() < scratch_bytes) scratch_.resize(scratch_bytes);
}

void Executor::end() {
  if (plan_->schedule.arrivals > 0) {
    if (!finished()) group_window_.window()->withdraw();
    group_window_.window()->end();
  }
  memory_.end();
  task_ = nullptr;
  plan_ = nullptr;
  peers_.clear();
}

bool Executor::advance() {
  if (plan_->schedule.in_order) return advance_in_order();
  bool moved = run_local_steps();
  moved |= run_window_steps();
  for (PeerProgress& peer : peers_) {
    try {
      if (peer.sent < peer.plan->sends.size() && connected(peer)) moved |= send_to(peer);
      if (peer.received < peer.plan->receives.size() && connected(peer))
        moved |= receive_from(peer);
    } catch (const transport::LinkClosed& closed) {
      throw PeerError(gone_text(peer.plan->peer,
                                peer.channel->lost.empty() ? closed.what() : peer.channel->lost));
    }
    moved |= run_local_steps();
  }
  moved |= run_window_steps();
  return moved || awaits_input();
}

/// Returns true, and yields the core, while input has not arrived. The driver then keeps polling:
/// it must not sleep, because the arrival of input from a device does not wake it.
bool Executor::awaits_input() const {
  if (!memory_.waits()) return false;
  std::this_thread::yield();
  return true;
}

bool Executor::may_run(std::uint32_t step) const {
  return waits_[step] == 0 && memory_.allows(plan_->schedule.steps[step]);
}

bool Executor::connected(PeerProgress& peer) {
  if (!peer.channel || !peer.channel->connected()) {
    peer.channel = &channels_.open(transport::Purpose::collective, peer.plan->peer);
  }
  return peer.channel->connected();
}

bool Executor::may_send(const PeerProgress& peer) const {
  return peer.next_send < peer.plan->sends.size() && may_run(peer.plan->sends[peer.next_send]);
}

bool Executor::send_to(PeerProgress& peer) {
  const std::uint64_t before = task_->traffic.bytes_sent;
  const Channel& channel = *peer.channel;
  for (const auto& lane : channel.lanes) {
    if (lane->sending()) push(peer, *lane);
  }
  while (may_send(peer) && task_->traffic.bytes_sent - before < kTurnBytes) {
    const std::optional<std::size_t> rail = channel.free_rail();
    if (!rail) break;
    Lane& lane = *channel.lanes[*rail];
    const std::uint32_t step = peer.plan->sends[peer.next_send];
    Frame frame;
    frame.call = task_->call;
    frame.message = static_cast<std::uint32_t>(peer.next_send++);
    lane.start(frame, bytes_of(plan_->schedule.steps[step].src), step);
    push(peer, lane);
  }
  return task_->traffic.bytes_sent != before;
}

void Executor::push(PeerProgress& peer, Lane& lane) {
  if (!lane.push(task_->traffic)) return;
  ++peer.sent;
  complete(static_cast<std::uint32_t>(lane.token()));
}

/// Reads from all lanes before it throws: even if several links end, each may have delivered data
/// that the call still needs.
bool Executor::receive_from(PeerProgress& peer) {
  const std::uint64_t before = task_->traffic.bytes_received;
  std::exception_ptr ended;
  for (const auto& lane : peer.channel->lanes) {
    try {
      receive_on(*lane, peer);
    } catch (const transport::LinkClosed&) {
      ended = std::current_exception();
    }
  }
  const bool moved = task_->traffic.bytes_received != before;
  if (ended && !moved && peer.received < peer.plan->receives.size()) std::rethrow_exception(ended);
  return moved;
}

/// Receives data that has arrived, but not much more than kTurnBytes, so that the engine can do its
/// other work.
void Executor::receive_on(Lane& lane, PeerProgress& peer) {
  const std::uint64_t limit = task_->traffic.bytes_received + kTurnBytes;
  while (peer.received < peer.plan->receives.size() && task_->traffic.bytes_received < limit) {
    const Frame* frame = lane.incoming(task_->traffic);
    if (!frame || frame->call.sequence > task_->call.sequence) break;
    if (!lane.accepted()) {
      check(*frame, peer);
      received_[peer.plan->receives[frame->message]] = 1;
      lane.accept();
    }
    const std::uint32_t index = peer.plan->receives[frame->message];
    if (!may_run(index)) break;
    if (!receive_payload(lane, plan_->schedule.steps[index])) break;
    lane.finish_incoming();
    ++peer.received;
    complete(index);
  }
}

void Executor::check(const Frame& frame, const PeerProgress& peer) {
  const std::optional<Call> mine = history_.find(frame.call.sequence);
  if (mine && !mine->matches(frame.call)) {
    const std::string theirs =
        fmt::format("rank {} calls {}", peer.plan->peer, describe_unlike(frame.call, *mine));
    if (mine->sequence == task_->call.sequence) throw MismatchError(theirs + instead_of(*mine));
    throw MismatchError(
        fmt::format("{}, but rank {} called {}", theirs, channels_.group().rank, describe(*mine)));
  }
  if (frame.kind != FrameKind::collective || frame.call.sequence != task_->call.sequence) {
    throw CorruptionError(fmt::format("rank {} sent an unexpected message of the call {}",
                                      peer.plan->peer, describe(frame.call)));
  }
  const bool known = frame.message < peer.plan->receives.size();
  const std::size_t expected =
      known ? byte_count(plan_->schedule.steps[peer.plan->receives[frame.message]].dst) : 0;
  if (!known || frame.payload_bytes != expected) {
    throw MismatchError(
        fmt::format("rank {} sent {} bytes as message number {} of the call, but {} bytes are "
                    "expected: the ranks "
                    "disagree about counts of elements",
                    peer.plan->peer, frame.payload_bytes, frame.message, expected));
  }
  if (received_[peer.plan->receives[frame.message]]) {
    throw CorruptionError(fmt::format("rank {} sent message number {} of the call twice",
                                      peer.plan->peer, frame.message));
  }
}

bool Executor::receive_payload(Lane& lane, const Step& step) {
  const std::size_t total = byte_count(step.dst);
  if (step.kind == StepKind::recv) {
    return lane.read_payload({writable(step.dst), total}, task_->traffic);
  }
  while (lane.payload_received() < total) {
    const std::span<const std::byte> bytes = lane.peek_payload(element_bytes_, task_->traffic);
    if (bytes.empty()) return false;
    const std::size_t at = lane.payload_received();
    const void* local = readable(step.src) + at;
    const void* remote = bytes.data();
    // The operand of the lower rank goes first, so that every rank computes the same expression.
    if (GroupRank(step.peer) < channels_.rank()) std::swap(local, remote);
    reduce_pair(*task_, local, remote, writable(step.dst) + at, bytes.size());
    lane.consume_payload(bytes.size(), task_->traffic);
  }
  return true;
}

bool Executor::run_local_steps() {
  bool moved = false;
  while (!local_.empty()) {
    const std::uint32_t index = local_.back();
    local_.pop_back();
    const Step& step = plan_->schedule.steps[index];
    if (!memory_.allows(step)) {
      early_.push_back(index);
      continue;
    }
    run(step);
    complete(index);
    moved = true;
  }
  local_.swap(early_);
  return moved;
}

void Executor::run(const Step& step) {
  const bool coded = step.kind == StepKind::encode || step.kind == StepKind::decode ||
                     step.kind == StepKind::fold_coded;
  if (coded) return run_coded(step);
  if (step.kind == StepKind::copy) {
    const std::size_t bytes = step.dst.count * element_bytes_;
    const bool to_result =
        step.dst.space == Space::output && step.src.space == Space::input && !task_->in_place;
    (to_result ? copy_input_to_output : copy_anywhere)(*task_, writable(step.dst),
                                                       readable(step.src), bytes);
    return;
  }
  operands_.clear();
  for (std::size_t i = 0; i < step.operands; ++i) {
    operands_.push_back(readable(step.src) + i * step.dst.count * element_bytes_);
  }
  fold(step);
}

/// Folds operands_ into the step's destination.
void Executor::fold(const Step& step) {
  fold_operands(*task_, operands_, writable(step.dst), step.dst.count, step.completes,
                channels_.size());
}

void Executor::complete(std::uint32_t index) {
  const schedule::Schedule& schedule = plan_->schedule;
  const Step& step = schedule.steps[index];
  const bool folds = step.kind == StepKind::fold || step.kind == StepKind::read_fold ||
                     step.kind == StepKind::fold_coded;
  if (step.completes && !folds) {
    divide_average(*task_, writable(step.dst), step.dst.count, channels_.size());
  }
  --remaining_;
  memory_.ended(step);
  for (std::uint32_t i = schedule.successor_begin[index]; i < schedule.successor_begin[index + 1];
       ++i) {
    const std::uint32_t successor = schedule.successors[i];
    if (--waits_[successor] != 0) continue;
    const StepKind kind = schedule.steps[successor].kind;
    if (!is_message(kind) && !is_window(kind)) local_.push_back(successor);
  }
}

void Executor::watch(Sleep& sleep) {
  for (const PeerProgress& peer : peers_) {
    if (!peer.channel || !peer.channel->connected()) continue;
    for (const auto& lane : peer.channel->lanes) {
      short events = 0;
      if (lane->sending() || may_send(peer)) events |= POLLOUT;
      // While a lane's incoming message cannot be used yet, its payload is not read, so more data
      // on this lane must not end the sleep.
      const Frame* header = lane->header();
      const bool stalled =
          header && (!lane->accepted() || !may_run(peer.plan->receives[header->message]));
      if (peer.received < peer.plan->receives.size() && !stalled) events |= POLLIN;
      sleep.watch(lane->link(), events);
    }
  }
}

std::vector<GroupRank> Executor::waiting_for() const {
  std::vector<GroupRank> ranks;
  if (!plan_) return ranks;
  if (next_window_ < plan_->window.size()) {
    const Step& step = plan_->schedule.steps[plan_->window[next_window_]];
    const node::Window& window = *group_window_.window();
    if (!awaits(step.kind) && !window.is_open() && window.late() >= 0) {
      ranks.emplace_back(window.late());
    }
    for (const GroupRank peer : group_window_.neighbours()) {
      const bool concerns =
          awaits(step.kind) && (step.peer == schedule::kAllPeers || step.peer == peer.number());
      if (concerns && !window.arrived(peer.number(), step.mark)) ranks.push_back(peer);
    }
  }
  for (const PeerProgress& peer : peers_) {
    if (peer.received < peer.plan->receives.size() || peer.sent < peer.plan->sends.size()) {
      ranks.push_back(peer.plan->peer);
    }
  }
  return ranks;
}

std::size_t Executor::byte_count(const Region& region) const {
  return schedule::byte_count(region, element_bytes_, task_->call.coding);
}

std::byte* Executor::writable(const Region& region) {
  const std::size_t offset = region.offset * element_bytes_;
  switch (region.space) {
    case Space::scratch:
      return scratch_.data() + offset;
    case Space::output:
      return static_cast<std::byte*>(task_->out.data) + offset;
    case Space::input:  // written only in place: this memory is then also output
      return static_cast<std::byte*>(const_cast<void*>(task_->in.data)) + offset;
    case Space::coded:
      return scratch_.data() + coded_begin_ +
             task_->call.coding.bytes(region.offset, Coded::contribution);
    case Space::sums:
      return scratch_.data() + sums_begin_ + task_->call.coding.bytes(region.offset, Coded::sum);
  }
  return nullptr;
}

const std::byte* Executor::readable(const Region& region) const {
  return const_cast<Executor*>(this)->writable(region);
}

std::span<const std::byte> Executor::bytes_of(const Region& region) const {
  return {readable(region), byte_count(region)};
}

}  // namespace mccl::engine
