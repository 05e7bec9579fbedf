#include "engine/operation.h"

#include "engine/engine.h"

namespace mccl::engine {

Clock::time_point deadline_after(Clock::time_point start, std::chrono::milliseconds timeout) {
  const bool limited = timeout.count() > 0 && timeout < std::chrono::hours(24 * 365);
  return limited ? start + timeout : Clock::time_point::max();
}

std::string Operation::description() const { return describe(call); }

void Operation::help(Clock::time_point until) {
  if (const std::shared_ptr<Engine> owner = engine.lock()) {
    owner->help(*this, until);
  }
  if (!done()) sleep_until_done(until);
}

CallSample Operation::sample(Clock::time_point now, bool failed) const {
  CallSample sample;
  sample.queue_wait_s = seconds_between(submitted, started);
  sample.execution_s = seconds_between(started, now);
  sample.network_s = traffic.network_s;
  sample.reduce_s = reduce_s;
  sample.payload_bytes = std::max(input.bytes(), output.bytes());
  sample.bytes_sent = traffic.bytes_sent;
  sample.bytes_received = traffic.bytes_received;
  sample.failed = failed;
  return sample;
}

}  // namespace mccl::engine
