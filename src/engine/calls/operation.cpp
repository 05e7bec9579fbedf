#include "engine/calls/operation.h"

#include <fmt/format.h>

#include <algorithm>

#include "mccl/error.h"

namespace mccl::engine {

Clock::time_point deadline_after(Clock::time_point start, std::chrono::milliseconds timeout) {
  const bool limited = timeout.count() > 0 && timeout < std::chrono::hours(24 * 365);
  return limited ? start + timeout : Clock::time_point::max();
}

/// Omits the number of a message. The thread that drives the engine may set it during this call,
/// which needs no lock.
std::string Operation::description() const {
  return is_collective(call) ? describe(call) : describe(call, 0);
}

void Operation::help(Clock::time_point until) {
  if (held_back.load(std::memory_order_acquire)) {
    throw InvalidArgument(
        fmt::format("{} cannot be waited for yet: it was called between begin_coalescing and "
                    "end_coalescing; call end_coalescing first",
                    description()));
  }
  if (const std::shared_ptr<CallDriver> awake = driver.lock()) awake->help(*this, until);
  if (!done()) sleep_until_done(until);
}

CallSample Task::sample() const {
  CallSample sample;
  sample.network_s = traffic.network_s;
  sample.reduce_s = reduce_s;
  sample.payload_bytes = std::max(in.bytes(), out.bytes());
  sample.bytes_sent = traffic.bytes_sent;
  sample.bytes_received = traffic.bytes_received;
  return sample;
}

}  // namespace mccl::engine
