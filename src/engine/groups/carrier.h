// A library that carries out a group's calls on the host's memory, in place of schedules over
// links: MPI. The engine keeps what a library does not do: the order of the calls, their comparison
// between the ranks, time limits, the death of a member and an abort.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "engine/calls/operation_list.h"

namespace mccl::engine {

/// Of one group. Used under the engine's progress lock, except where a function says otherwise.
class Carrier {
 public:
  virtual ~Carrier() = default;

  /// As the metrics name the algorithm of a call that it carries out. From any thread.
  virtual std::string_view name() const = 0;
  /// Throws InvalidArgument for a call that it cannot carry out. From any thread.
  virtual void check(const Task& task) const = 0;
  /// Whether a caller that waits may look after the collective by itself.
  virtual bool runs_at_once(const Task& task) const = 0;

  /// Begins a collective; the one before has ended.
  virtual void begin(Task& task) = 0;
  /// Looks at it once. True when it has ended, and its result is in the task's output. Throws what
  /// went wrong.
  virtual bool advance() = 0;

  /// Begins a message, and keeps it until it has ended.
  virtual void post(std::shared_ptr<Operation> message) = 0;
  /// Looks at all messages once, and moves those that have ended to `ended`. Throws what went wrong
  /// with one.
  virtual bool advance_messages(OperationList& ended) = 0;
  /// Those that have not ended.
  virtual const OperationList& messages() const = 0;
  /// Takes back a receive to which no message has come. Null for any other message; one that has
  /// ended by now loses its deadline.
  virtual std::shared_ptr<Operation> cancel(Operation& message) = 0;

  /// Whether the library has to be asked for progress again and again; else it wakes the driver.
  virtual bool has_to_be_asked() const = 0;
  /// Why it carries out no call any more in this process; empty while it does.
  virtual std::string failure() const = 0;
  virtual bool is_over() const = 0;

  /// The group has failed for `reason`: whether the library has let go of all memory of the
  /// callers. It does so in a limited time.
  virtual bool let_go(const std::string& reason, Clock::time_point now) noexcept = 0;
  /// Once it has let go: all messages that have not ended.
  virtual OperationList drop_messages() noexcept = 0;
  /// No call comes any more. `whole`: the group has not failed.
  virtual void close(bool whole) noexcept = 0;
};

}  // namespace mccl::engine
