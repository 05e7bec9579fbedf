#include "backend/mpi/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <future>
#include <utility>

#include "base/thread.h"
#include "mccl/error.h"

namespace mccl::mpi {
namespace {

/// How often deadlines and what other ranks say are looked at while calls are under way.
constexpr std::chrono::microseconds kBetweenLooks{200};
constexpr std::chrono::microseconds kBetweenLastLooks{100};

}  // namespace

Engine::Engine(std::chrono::microseconds spin) : spin_(spin) {}

Engine::~Engine() { stop(); }

bool Engine::start(std::function<void()> begin, std::function<void()> end,
                   std::chrono::milliseconds patience) {
  const auto begun = std::make_shared<std::promise<void>>();
  thread_ =
      start_thread("mccl-mpi", [this, begun, first = std::move(begin), last = std::move(end)] {
        thread_id_ = std::this_thread::get_id();
        try {
          first();
          begun->set_value();
        } catch (...) {
          begun->set_exception(std::current_exception());
          return;
        }
        work();
        retire(last);
      });
  std::future<void> done = begun->get_future();
  if (done.wait_for(patience) != std::future_status::ready) return false;
  done.get();
  return true;
}

void Engine::stop() {
  {
    const std::lock_guard lock(inbox_mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Engine::use(Library& library, Handle control, int world_rank, ThreadLevel level,
                 bool is_shared) {
  library_ = &library;
  is_shared_ = is_shared;
  callers_drive_ = level >= ThreadLevel::serialized;
  makes_bulk_ =
      level == ThreadLevel::multiple && library.identity().version.starts_with("Open MPI");
  world_rank_ = world_rank;
  notices_ = std::make_unique<Notices>(library, control);
}

void Engine::run(const std::function<void()>& body) {
  std::promise<void> done;
  const auto errand = [&] {
    try {
      body();
      done.set_value();
    } catch (...) {
      done.set_exception(std::current_exception());
    }
  };
  if (std::unique_lock lock(inbox_mutex_);
      !callers_drive_ && std::this_thread::get_id() != thread_id_) {
    errands_.emplace_back(errand);
    asked_ = true;
    wake_.notify_all();
    lock.unlock();
    return done.get_future().get();
  }
  const std::lock_guard lock(driving_);
  body();
}

void Engine::run_errands() {
  std::vector<std::function<void()>> errands;
  {
    const std::lock_guard lock(inbox_mutex_);
    errands.swap(errands_);
  }
  for (const auto& errand : errands) errand();
}

void Engine::add(const std::shared_ptr<GroupState>& group) {
  groups_[group->id] = group;
  for (const Notice& notice : early_) {
    if (notice.group == group->id) hear(notice);
  }
  std::erase_if(early_, [&](const Notice& notice) { return notice.group == group->id; });
}

void Engine::close(const std::shared_ptr<GroupState>& group, const std::string& reason) {
  Callbacks callbacks;
  run([&] {
    if (groups_.erase(group->id) == 0) return;
    take_inbox();
    const bool failed = group->failed();
    group->fail(Kind::aborted, reason);
    if (!is_over()) say_left(*group);
    {
      const std::lock_guard lock(inbox_mutex_);
      failed_.push_back({group, false});
    }
    const bool idle = group->under_way == 0;
    sweep();
    if (idle && !failed && !is_over()) unused_.push_back(group->place.comm);
    callbacks = take_callbacks();
  });
  run_callbacks(std::move(callbacks));
  await_last_calls(*group);
}

/// What has the program's memory ends before the group does.
void Engine::await_last_calls(const GroupState& group) {
  const auto is_of_group = [&](const auto& call) { return call->group.get() == &group; };
  for (bool ended = false; !ended;) {
    Callbacks callbacks;
    run([&] {
      pass();
      ended = std::ranges::none_of(active_, is_of_group);
      callbacks = take_callbacks();
    });
    run_callbacks(std::move(callbacks));
    if (!ended) std::this_thread::sleep_for(kBetweenLastLooks);
  }
}

void Engine::submit(std::span<const std::shared_ptr<Call>> calls) {
  const Clock::time_point now = Clock::now();
  bool waited_for = true;
  for (const auto& call : calls) {
    call->submitted = now;
    if (call->timeout.count() > 0) call->deadline = now + call->timeout;
    waited_for = waited_for && call->caller_waits;
  }
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.insert(inbox_.end(), calls.begin(), calls.end());
    for (const auto& call : calls) call->held_back = false;
    pending_ += static_cast<int>(calls.size());
    has_inbox_.store(true, std::memory_order_release);
  }
  if (callers_drive_) {
    Callbacks callbacks;
    if (std::unique_lock lock(driving_, std::try_to_lock); lock) {
      take_inbox();
      if (asked_) sweep();
      callbacks = take_callbacks();
    }
    run_callbacks(std::move(callbacks));
  }
  if (!waited_for || !callers_drive_) wake();
}

void Engine::wake() {
  const std::lock_guard lock(inbox_mutex_);
  wake_.notify_all();
}

bool Engine::pass() {
  bool moved = has_inbox_;
  take_inbox();
  if (!is_over()) {
    for (std::size_t i = 0; i < active_.size();) {
      if (advance(active_[i])) {
        active_[i] = std::move(active_.back());
        active_.pop_back();
        moved = true;
      } else {
        ++i;
      }
    }
    const Clock::time_point now = Clock::now();
    if (now - looked_ >= kBetweenLooks) look_around(now);
  } else {
    end_what_is_left();
  }
  if (asked_) sweep();
  return moved;
}

void Engine::take_inbox() {
  if (!has_inbox_.load(std::memory_order_acquire)) return;
  std::vector<std::shared_ptr<Call>> calls;
  {
    const std::lock_guard lock(inbox_mutex_);
    calls.swap(inbox_);
    has_inbox_ = false;
  }
  for (const auto& call : calls) accept(call);
}

/// Numbers the call, and begins it unless the group makes one that must end first.
void Engine::accept(const std::shared_ptr<Call>& call) {
  GroupState& group = *call->group;
  if (is_collective(call->request().collective)) {
    call->number = ++group.started;
    if (group.bulk && !group.failed()) return group.waiting.push_back(call);
  }
  begin(call);
}

void Engine::begin(const std::shared_ptr<Call>& call) {
  GroupState& group = *call->group;
  call->begun = Clock::now();
  call->is_bulk = is_bulk(call->request());
  if (call->is_bulk && !group.failed() && !is_over()) hear_notices();
  if (!group.failed() && is_over()) group.fail(Kind::error, over());
  if (group.failed()) return finish(call, error_of(*call));
  ++group.under_way;
  call->flight = take_flight();
  active_.push_back(call);
  try {
    if (call->is_bulk) {
      group.bulk = call;
      call->flight->gather(group.place);
    } else {
      call->flight->begin(group.place, call->request());
    }
  } catch (const std::exception& error) {
    fail(call->group, kind_of(error),
         fmt::format("{} on rank {} of group '{}' failed: {}", call->description(),
                     group.place.rank, group.name, error.what()),
         true);
  }
}

/// Whether the call has ended.
bool Engine::advance(const std::shared_ptr<Call>& call) {
  GroupState& group = *call->group;
  if (call->working) return false;  // the group's thread ends it
  if (group.failed()) return end_failed(call);
  try {
    if (!call->flight->test()) return false;
    if (call->flight->taken_back()) {
      finish(call, std::make_exception_ptr(TimeoutError(fmt::format(
                       "{} on rank {} of group '{}' timed out after {:.3g} s: no such message came",
                       call->description(), group.place.rank, group.name,
                       seconds_between(call->submitted, Clock::now())))));
      return true;
    }
    if (call->is_bulk) {
      hand_to_worker(call);
      return false;
    }
    call->flight->land(call->request());
    if (call->request().collective == Collective::recv) {
      const int source = call->flight->source();
      call->came_from(source);
    }
    finish(call, nullptr);
    return true;
  } catch (const std::exception& error) {
    fail(call->group, kind_of(error),
         fmt::format("{} on rank {} of group '{}' failed: {}", call->description(),
                     group.place.rank, group.name, error.what()),
         true);
    return false;
  }
}

void Engine::hear_notices() {
  try {
    for (Notice notice; notices_->receive(notice);) hear(notice);
  } catch (const std::exception& error) {
    deaf_ = error.what();
  }
}

void Engine::look_around(Clock::time_point now) {
  looked_ = now;
  hear_notices();
  try {
    notices_->settle();
    free_comms();
  } catch (const std::exception& error) {
    deaf_ = error.what();
  }
  // Without a word from the others no call could be ended that they have given up.
  if (!deaf_.empty()) return end_for_good(deaf_);
  for (const auto& call : active_) {
    if (now >= call->last_moment && !gathers(*call)) return end_for_good(call->group->failure());
    if (call->group->failed()) continue;
    const int left = absentee(*call, now);
    if (left >= 0) {
      fail(call->group, Kind::peer,
           fmt::format("{} on rank {} of group '{}' failed: rank {} has left the job; see what "
                       "that rank printed last",
                       call->description(), call->group->place.rank, call->group->name, left),
           true);
    } else if (now >= call->deadline) {
      expire(call, now);
    } else if (call->is_bulk) {
      const auto& waiting = call->group->waiting;
      const auto late =
          std::ranges::find_if(waiting, [now](const auto& each) { return now >= each->deadline; });
      if (late != waiting.end()) expire(*late, now);
    }
  }
  std::erase_if(lost_, [](Lost& lost) {
    try {
      return lost.flight->test();
    } catch (const std::exception&) {
      return false;  // it is not asked for any more
    }
  });
}

void Engine::expire(const std::shared_ptr<Call>& call, Clock::time_point now) {
  constexpr std::chrono::seconds kToTakeBack{1};
  if (call->request().collective == Collective::recv && !call->cancelling) {
    call->cancelling = true;
    call->deadline = now + kToTakeBack;
    try {
      return call->flight->cancel();
    } catch (const std::exception&) {  // then it is not taken back, and the group fails
    }
  }
  fail(call->group, Kind::timeout,
       fmt::format("{} on rank {} of group '{}' timed out after {:.3g} s, and MPI does not tell "
                   "which rank is missing; all ranks must make the same calls in the same order; "
                   "if ranks may be so late, give a longer timeout (MCCL_TIMEOUT, or that of the "
                   "call)",
                   call->description(), call->group->place.rank, call->group->name,
                   seconds_between(call->submitted, now)),
       true);
}

std::unique_ptr<Flight> Engine::take_flight() {
  if (spare_.empty()) return std::make_unique<Flight>();
  std::unique_ptr<Flight> flight = std::move(spare_.back());
  spare_.pop_back();
  return flight;
}

void Engine::finish(const std::shared_ptr<Call>& call, std::exception_ptr error) {
  constexpr std::size_t kMostSpare = 64;
  const Clock::time_point now = Clock::now();
  CallSample sample;
  sample.queue_wait_s = seconds_between(call->submitted, call->begun);
  sample.execution_s = sample.network_s = seconds_between(call->begun, now);
  sample.bytes_sent = call->request().in.bytes();
  sample.bytes_received = call->request().out.bytes();
  sample.payload_bytes = std::max(sample.bytes_sent, sample.bytes_received);
  sample.failed = error != nullptr;
  call->group->metrics->record(sample);
  if (call->group->bulk == call) call->group->bulk.reset();
  if (call->flight && !call->working) {
    --call->group->under_way;
    if (spare_.size() < kMostSpare) spare_.push_back(std::move(call->flight));
    call->flight.reset();
  }
  --pending_;
  auto callbacks = call->finish(error);
  if (!callbacks.empty()) callbacks_.emplace_back(std::move(callbacks), error);
}

/// What they hold goes when they have run, before the caller sleeps.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Engine::run_callbacks(Callbacks callbacks) {
  for (const auto& [each, error] : callbacks) {
    for (const Work::Callback& callback : each) {
      try {
        callback(error);
      } catch (...) {  // it must not throw; whoever waits must not suffer from it
      }
    }
  }
}

void Engine::listen() {
  const auto look = [this] {
    if (is_over()) return;
    look_around(Clock::now());
    if (asked_) sweep();
  };
  if (!callers_drive_) return run(look);
  Callbacks callbacks;
  if (const std::unique_lock lock(driving_, std::try_to_lock); lock) {
    look();
    callbacks = take_callbacks();
  }
  run_callbacks(std::move(callbacks));
}

std::string Engine::over() const {
  const std::lock_guard lock(inbox_mutex_);
  if (!reason_over_.empty() || !is_over()) return reason_over_;
  return "the program has called MPI_Finalize, after which nobody can call MPI; shut MCCL down "
         "before that";
}

}  // namespace mccl::mpi
