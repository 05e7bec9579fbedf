#include "engine/calls/completions.h"

#include <new>
#include <utility>

namespace mccl::engine {

Completions::Completions(std::shared_ptr<Metrics> metrics, FlightRecorder& recorder,
                         Staging& staging, const Log& log)
    : metrics_(std::move(metrics)),
      tally_(metrics_->tally()),
      recorder_(recorder),
      staging_(staging),
      log_(log) {}

void Completions::note(Operation& operation, FlightEntry::State state) noexcept {
  if (!counts()) return;
  FlightEntry entry = operation.flight_entry(state);
  entry.submitted = nanoseconds_of(operation.submitted);
  if (state != FlightEntry::queued) entry.started = nanoseconds_of(operation.started);
  operation.flight.number = recorder_.write(entry, operation.flight.number);
}

void Completions::finish(std::shared_ptr<Operation> operation, std::exception_ptr error) noexcept {
  if (operation->done()) return;
  if (counts()) {
    ended_calls_.add(*operation);
    const Clock::time_point now = Clock::now();
    FlightEntry entry = operation->flight_entry(error ? FlightEntry::failed : FlightEntry::done);
    entry.submitted = nanoseconds_of(operation->submitted);
    entry.started = nanoseconds_of(operation->started);
    entry.ended = nanoseconds_of(now);
    recorder_.write(entry, operation->flight.number);
    CallSample sample = operation->sample();
    sample.queue_wait_s = seconds_between(operation->submitted, operation->started);
    sample.execution_s = seconds_between(operation->started, now);
    if (operation->traffic.carried) sample.network_s = sample.execution_s;
    sample.failed = error != nullptr;
    metrics_->record(sample);
  }
  staging_.report();
  operation->callbacks = operation->finish(std::move(error));
  if (!operation->callbacks.empty()) with_callbacks_.push_back(std::move(operation));
}

void Completions::end_at_once(const Task& task, Clock::time_point begun, Cycles cycles) {
  ++at_once_;
  if (!counts()) return;
  ended_calls_.add(task);
  FlightEntry entry = task.flight_entry(FlightEntry::done);
  entry.in_cycles = true;
  entry.started = cycles.begun;
  entry.ended = cycles.ended;
  recorder_.write(entry);
  if (begun == Clock::time_point()) {
    tally_->count(task.traffic.bytes_sent, task.traffic.bytes_received);
    return;
  }
  CallSample sample = task.sample();
  sample.execution_s = seconds_between(begun, Clock::now());
  if (task.traffic.carried) sample.network_s = sample.execution_s;
  metrics_->record(sample, kTimedEvery);
}

void Completions::fail_at_once(const Task& task) noexcept {
  if (!counts()) return;
  ended_calls_.add(task);
  FlightEntry entry = task.flight_entry(FlightEntry::failed);
  entry.started = entry.ended = nanoseconds_of(Clock::now());
  recorder_.write(entry);
  CallSample sample = task.sample();
  sample.failed = true;
  metrics_->record(sample);
}

void Completions::run(OperationList calls) const noexcept {
  for (Operation& call : calls) {
    for (const Work::Callback& callback : std::exchange(call.callbacks, {})) {
      try {
        callback(call.error());
      } catch (const std::exception& thrown) {
        blame_callback(thrown.what());
      } catch (...) {
        blame_callback("an object that is not a std::exception");
      }
    }
  }
}

void Completions::blame_callback(std::string_view thrown) const noexcept {
  try {
    log_.error(
        "a callback that the program registered for a call threw an exception, which is dropped: "
        "{}",
        thrown);
  } catch (const std::bad_alloc&) {
    // Memory has run out, so the exception cannot be logged.
  }
}

}  // namespace mccl::engine
