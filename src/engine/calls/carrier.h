// A carrier lets a library, such as MPI, carry out a group's calls on host memory, in place of
// schedules over links. The engine still orders the calls, compares them between ranks, enforces
// time limits, and handles aborts and the death of members.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "engine/calls/operation.h"
#include "mccl/error.h"

namespace mccl::engine {

/// Thrown if the ranks of a group make different calls. The carrier does not know these calls.
class CallsDiffer : public MismatchError {
 public:
  CallsDiffer() : MismatchError("the ranks of the group make different calls") {}
};

/// The carrier of one group. Used under the engine's progress lock, except where a comment says
/// otherwise.
class Carrier {
 public:
  virtual ~Carrier() = default;

  /// Name of the algorithm in the metrics. Called from any thread.
  virtual std::string_view name() const = 0;
  /// Throws InvalidArgument for a call that the carrier cannot carry out. Called from any thread.
  virtual void check(const Request& request) const = 0;
  /// True if a caller may begin and advance this collective on its own thread.
  virtual bool runs_at_once(const Request& request) const = 0;

  /// Begins a collective. The previous collective must have ended. Keeps no reference to `task`,
  /// whose address may change.
  virtual void begin(Task& task) = 0;
  /// Tests a few times whether the collective has ended. Returns true if it has ended; the result
  /// is then in the task's output. Throws the error of a collective that has failed.
  virtual bool advance() = 0;

  /// Begins a message, and owns it until it has ended.
  virtual void post(std::shared_ptr<Operation> message) = 0;
  /// Tests each message once, and moves the ended messages to `ended`. Returns true if any message
  /// has ended. Throws the error of a message that has failed.
  virtual bool advance_messages(OperationList& ended) = 0;
  /// The messages that have begun and have not ended.
  virtual const OperationList& messages() const = 0;
  /// Cancels and returns a receive for which no message has arrived. Returns null for any other
  /// message. If a message has just arrived for the receive, the receive's deadline is removed, so
  /// that the receive does not time out before advance_messages() finds that it has ended.
  virtual std::shared_ptr<Operation> cancel(Operation& message) = 0;

  /// True if the engine must poll the carrier while calls are in flight. If false, the carrier
  /// wakes the driver when a call has ended.
  virtual bool has_to_be_asked() const = 0;
  /// The reason why the library can no longer be used in this process; empty while it can be used.
  virtual std::string failure() const = 0;
  /// True if the library can no longer be used in this process.
  virtual bool is_over() const = 0;

  /// Called repeatedly after the group has failed for `reason`. Returns true once the library no
  /// longer accesses memory of the callers. Must return true within a bounded time.
  virtual bool let_go(const std::string& reason, Clock::time_point now) noexcept = 0;
  /// Removes and returns all messages that have not ended. Called once let_go() has returned true.
  virtual OperationList drop_messages() noexcept = 0;
  /// Called when no more calls follow, because the group is destroyed. `whole` is true if the group
  /// has not failed and had no pending calls.
  virtual void close(bool whole) noexcept = 0;
};

}  // namespace mccl::engine
