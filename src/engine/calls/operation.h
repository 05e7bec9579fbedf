// One call in flight: its request, its progress and its deadline. Calls are elements of intrusive
// lists.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/flight_recorder.h"
#include "base/rank.h"
#include "base/work_state.h"
#include "engine/calls/request.h"
#include "kernels/unit.h"
#include "mccl/metrics.h"

namespace mccl::engine {

class GroupState;

/// Makes calls progress until they are done.
class CallDriver {
 public:
  virtual ~CallDriver() = default;
  /// Drives calls until `work` is done or `deadline` has passed. May return earlier if another
  /// thread drives meanwhile.
  virtual void help(detail::WorkState& work, Clock::time_point deadline) = 0;
};

/// Returns `start` plus `timeout`; time_point::max() if the timeout is not positive or is a year or
/// more.
Clock::time_point deadline_after(Clock::time_point start, std::chrono::milliseconds timeout);

/// The data that the call's flight record needs and the request does not contain.
struct FlightNote {
  std::uint64_t number = FlightRecorder::kNone;  ///< Number of the call's flight record.
  std::uint32_t group = 0;                       ///< Index of the group in the flight recorder.
  std::int32_t waits_for = -1;                   ///< Group rank that the call waits for; -1: none.
  std::uint8_t algorithm = 0;                    ///< Index of the algorithm in the flight recorder.
};

/// A request that the engine carries out, with the time spent and the bytes moved so far.
struct Task : Request {
  Task() = default;
  explicit Task(const Request& request) : Request(request) {}

  std::vector<std::byte> multiplied;  ///< premul_sum: the input times the factor.
  /// See CallOptions::left_out; null if the caller does not want the compression error.
  std::byte* left_out = nullptr;
  /// Unit, such as a GPU, that computes the reductions that it supports. The host's kernels compute
  /// all others. If null, the host's kernels compute all reductions.
  std::shared_ptr<kernels::Unit> unit;

  Traffic traffic;
  double reduce_s = 0;
  FlightNote flight;

  /// Returns the call's values for the metrics, without its times in the queue and in execution.
  CallSample sample() const;
  /// Returns the call's flight record, without its times.
  FlightEntry flight_entry(FlightEntry::State state) const {
    FlightEntry entry;
    entry.sequence = call.sequence;
    entry.bytes = std::max(in.bytes(), out.bytes());
    entry.group = flight.group;
    entry.algorithm = flight.algorithm;
    entry.collective = call.collective;
    entry.kind = call.kind;
    entry.dtype = call.dtype;
    entry.state = state;
    entry.peer = is_collective(call) ? call.root : call.peer;
    entry.waits_for = flight.waits_for;
    entry.site = call.site;
    return entry;
  }
};

/// The result of an attempt to run a call on its caller's thread.
enum class AtOnce {
  no,       ///< Nothing has happened. The call must be submitted.
  not_yet,  ///< The call has begun and is not finished.
  whole,    ///< The call is finished.
};

/// Progress of a message. Used by Messages only.
struct MessageProgress {
  std::uint64_t order = 0;  ///< Receives only: number among the group's receives, from 1.
  /// Address of the message in the sender's memory, if the receiver may pull it; else 0.
  std::uint64_t address = 0;
  std::size_t pulled = 0;  ///< Receives only: number of bytes that have been pulled.
  std::size_t pieces = 0;  ///< Number of pieces; 0 until the receiver has granted the message.
  std::size_t begun = 0;   ///< Number of pieces whose sending has begun.
  std::size_t ended = 0;   ///< Number of pieces that have been sent or received in full.
  std::vector<bool> arriving = {};  ///< Per piece: true once its header has arrived.
};

/// A call in flight, and the state behind its Work. The caller's thread fills it and submits it to
/// the engine. Afterwards only the thread that holds the progress lock accesses it. An exception is
/// the base class WorkState, which any thread may use.
struct Operation final : detail::WorkState, Task {
  explicit Operation(Task task) : Task(std::move(task)), kept_counts_(*this) {}

  std::shared_ptr<GroupState> group;
  std::weak_ptr<CallDriver> driver;
  /// True if the caller is about to wait for this call and will drive it, so that no other thread
  /// needs to be woken. Becomes false, on any thread, once the caller has stopped waiting.
  std::atomic<bool> caller_waits{false};
  /// True if the call was made after begin_coalescing() and has not been submitted yet. Waiting for
  /// such a call would never end, because the engine does not have the call yet.
  std::atomic<bool> held_back{false};

  Clock::time_point submitted;
  Clock::time_point started;
  Clock::time_point deadline = Clock::time_point::max();

  MessageProgress message;
  std::vector<Work::Callback> callbacks;  ///< Callbacks that run once the call is done.

  std::string description() const override;
  /// The caller has not kept its promise to wait, so another thread must drive the call.
  void caller_left() override { caller_waits.store(false, std::memory_order_relaxed); }
  void received_from(GroupRank rank) { set_source(rank.number()); }

 protected:
  void help(Clock::time_point until) override;

 private:
  friend class OperationList;
  const KeptCounts kept_counts_;
  std::shared_ptr<Operation> next_;
  Operation* previous_ = nullptr;
};

/// A linked list of calls that owns its elements. A call is in at most one list at a time. Guarded
/// by the lock of the list's owner.
class OperationList {
 public:
  class Iterator {
   public:
    using value_type = Operation;
    using difference_type = std::ptrdiff_t;

    Iterator() = default;
    explicit Iterator(Operation* at) : at_(at) {}
    Operation& operator*() const { return *at_; }
    Operation* operator->() const { return at_; }
    Iterator& operator++() {
      at_ = at_->next_.get();
      return *this;
    }
    Iterator operator++(int) { return std::exchange(*this, Iterator(at_->next_.get())); }
    bool operator==(const Iterator& other) const = default;

   private:
    Operation* at_ = nullptr;
  };

  OperationList() = default;
  OperationList(OperationList&& other) noexcept { append(std::move(other)); }
  OperationList& operator=(OperationList&& other) noexcept {
    clear();
    append(std::move(other));
    return *this;
  }
  ~OperationList() { clear(); }

  bool empty() const { return first_ == nullptr; }
  Operation& front() const { return *first_; }
  Iterator begin() const { return Iterator(first_.get()); }
  Iterator end() const { return {}; }

  void push_back(std::shared_ptr<Operation> operation) noexcept {
    Operation* const added = operation.get();
    added->previous_ = last_;
    (last_ ? last_->next_ : first_) = std::move(operation);
    last_ = added;
  }
  void push_front(std::shared_ptr<Operation> operation) noexcept {
    operation->next_ = std::move(first_);
    first_ = std::move(operation);
    (first_->next_ ? first_->next_->previous_ : last_) = first_.get();
  }
  /// Removes and returns the operation, which must be in this list.
  std::shared_ptr<Operation> remove(Operation& operation) noexcept {
    Operation* const previous = std::exchange(operation.previous_, nullptr);
    std::shared_ptr<Operation>& holder = previous ? previous->next_ : first_;
    std::shared_ptr<Operation> removed = std::exchange(holder, std::move(operation.next_));
    (holder ? holder->previous_ : last_) = previous;
    return removed;
  }
  std::shared_ptr<Operation> pop_front() noexcept { return remove(*first_); }
  /// Moves all elements of `other` to the end of this list.
  void append(OperationList&& other) noexcept {
    if (other.empty()) return;
    other.first_->previous_ = last_;
    (last_ ? last_->next_ : first_) = std::move(other.first_);
    last_ = std::exchange(other.last_, nullptr);
  }

 private:
  /// Removes the calls one by one: destroying the chain as a whole would recurse once for each
  /// call.
  void clear() noexcept {
    while (!empty()) pop_front();
  }

  std::shared_ptr<Operation> first_;
  Operation* last_ = nullptr;
};

}  // namespace mccl::engine
