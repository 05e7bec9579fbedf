// Executes a Schedule over the lanes (links) of a group. Each step runs as soon as its inputs are
// available. Data moves to and from all peers at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/calls/call_history.h"
#include "engine/calls/operation.h"
#include "engine/collectives/group_window.h"
#include "engine/collectives/plan.h"
#include "engine/collectives/running_memory.h"
#include "engine/collectives/write_choice.h"
#include "engine/driving/driver.h"
#include "engine/links/channel.h"

namespace mccl::engine {

/// Runs one collective at a time. Used under the engine's progress lock.
class Executor {
 public:
  Executor(Channels& channels, GroupWindow& group_window, const CallHistory& history)
      : channels_(channels), group_window_(group_window), history_(history) {}

  /// Begins a collective. `task` and `plan` must stay alive until end().
  void begin(Task& task, const Plan& plan);
  /// Records that the running task has moved to another address.
  void moved_to(Task& task) { task_ = &task; }
  bool running() const { return task_ != nullptr; }
  bool finished() const { return running() && remaining_ == 0; }
  void end();

  /// Does all work that is possible without blocking. Returns false if the call made no progress.
  /// Throws MismatchError if another rank made a different call, PeerError if a rank that the call
  /// needs is gone, and CorruptionError for invalid data.
  bool advance();

  /// Size in bytes of the memory for sums and forwarded data. This memory is kept for later calls.
  std::size_t scratch_bytes() const { return scratch_.capacity(); }
  /// Releases the memory that scratch_bytes() counts. (`scratch_ = {}` would keep its capacity.) No
  /// call may be running.
  void release_scratch() { std::vector<std::byte>().swap(scratch_); }

  /// Adds to `sleep` the events to wait for before the next call of advance().
  void watch(Sleep& sleep);

  /// The peers that the call waits for: those with which it has messages left to send or receive,
  /// and the neighbours that must arrive in the window (node/window.h) before the next step. Used
  /// in error messages.
  std::vector<GroupRank> waiting_for() const;

 private:
  struct PeerProgress {
    const PeerPlan* plan = nullptr;
    Channel* channel = nullptr;
    std::size_t next_send = 0;  // index into plan->sends
    std::size_t sent = 0;       // number of messages sent in full
    std::size_t received = 0;   // number of messages received in full
  };

  /// Returns true if the links to the peer are connected; requests the links if necessary. Throws
  /// PeerError if the links can no longer be made.
  bool connected(PeerProgress& peer);
  bool send_to(PeerProgress& peer);
  void push(PeerProgress& peer, Lane& lane);
  bool receive_from(PeerProgress& peer);
  void receive_on(Lane& lane, PeerProgress& peer);
  bool run_local_steps();
  // Defined in executor_steps.cpp: steps that use the node's window (shared memory). They run in
  // the order of the schedule.
  bool advance_in_order();
  bool run_window_steps();
  bool run_window_step(const schedule::Step& step);
  bool wait_for(const schedule::Step& step);
  bool has_arrived(GroupRank rank, std::uint32_t mark);
  bool open_window();
  bool is_lost(GroupRank rank);
  [[noreturn]] void throw_lost(GroupRank rank);
  /// Throws MismatchError, because the neighbour `rank` makes a different call than this rank, or
  /// did so in an earlier collective.
  [[noreturn]] void throw_divergence(GroupRank rank) const;
  node::Places places() const;
  void publish(const schedule::Step& step);
  const std::byte* published_by(GroupRank rank, const schedule::Step& step,
                                const schedule::Region& region) const;
  bool copy_from_process(GroupRank rank, const schedule::Step& step, std::span<std::byte> to) const;
  void require_kept(GroupRank rank, const schedule::Step& step) const;
  void read(const schedule::Step& step);
  void read_fold(const schedule::Step& step);

  void check(const Frame& frame, const PeerProgress& peer);
  bool receive_payload(Lane& lane, const schedule::Step& step);
  void run(const schedule::Step& step);
  void fold(const schedule::Step& step);
  // Defined in executor_steps.cpp: steps of compressed sums, which are encoded on the wire.
  void run_coded(const schedule::Step& step);
  void list_blocks(const schedule::Step& step);
  GroupRank maker_of(const schedule::Step& fold, int operand) const;
  [[noreturn]] void throw_undecodable(GroupRank maker) const;
  void complete(std::uint32_t step);
  bool may_run(std::uint32_t step) const;
  bool may_send(const PeerProgress& peer) const;
  bool awaits_input() const;

  std::size_t byte_count(const schedule::Region& region) const;
  std::byte* writable(const schedule::Region& region);
  const std::byte* readable(const schedule::Region& region) const;
  std::span<const std::byte> bytes_of(const schedule::Region& region) const;

  Channels& channels_;
  GroupWindow& group_window_;
  const CallHistory& history_;
  Task* task_ = nullptr;
  const Plan* plan_ = nullptr;
  std::size_t element_bytes_ = 1;
  std::size_t remaining_ = 0;
  std::vector<std::uint32_t> waits_;
  std::vector<std::uint8_t> received_;  // per step: 1 once its message has started to arrive
  std::vector<PeerProgress> peers_;
  std::vector<std::uint32_t> local_;  // steps that wait for no other and use no link or window
  std::vector<std::uint32_t> early_;  // steps taken from local_ whose input has not arrived
  RunningMemory memory_;
  std::vector<std::byte> scratch_;
  std::size_t coded_begin_ = 0;                    // offset of encoded contributions in scratch_
  std::size_t sums_begin_ = 0;                     // offset of encoded sums in scratch_
  std::size_t next_window_ = 0;                    // index into plan_->window of the next step
  std::vector<const void*> operands_;              // operands of one fold
  std::vector<const std::byte*> blocks_;           // operands of one fold of encoded blocks
  WriteChoice write_choice_{2 * kUsualCallBytes};  // chooses how publish() writes
};

}  // namespace mccl::engine
