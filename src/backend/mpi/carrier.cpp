#include "backend/mpi/carrier.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <utility>

#include "backend/mpi/communicator.h"
#include "backend/mpi/flight.h"
#include "backend/mpi/process.h"
#include "base/keep.h"
#include "mccl/error.h"

namespace mccl::mpi {
namespace {

using engine::Operation;
using engine::OperationList;
using engine::Task;

/// Minimum size in bytes of collectives that use Open MPI's blocking functions, on another thread.
/// Open MPI's nonblocking functions are half as fast, which costs more than the handover to that
/// thread. MPICH does not have this difference.
constexpr std::size_t kBulkBytes = std::size_t{1} << 20;
/// Time for which a failed group waits for its calls in flight, which use the program's memory. If
/// some have not ended by then, this process stops using MPI. MPI soon completes a call that all
/// ranks have begun. A rank in the barrier before a blocking call waits for the same time, because
/// other ranks may already have left the barrier and entered the call.
constexpr std::chrono::milliseconds kLastMoment{1000};
/// Time limit that replaces kLastMoment if a thread is in a blocking call, which cannot be
/// cancelled.
constexpr std::chrono::milliseconds kLastMomentOfThreads{10'000};
/// Maximum number of times that one advance() tests whether a collective has ended. Several tests
/// are worthwhile, because the rest of advance() takes as long as one test.
constexpr int kLooks = 32;
/// Maximum number of times that cancel() tests whether a cancelled receive has ended.
constexpr int kLooksToTakeBack = 1000;

std::atomic<std::size_t> most_in_a_call{std::numeric_limits<int>::max()};

/// A large collective that uses MPI's blocking call. All ranks first enter a nonblocking barrier.
/// When the barrier ends, a thread makes the blocking call. This object is shared with that thread,
/// which may outlive the group.
struct Bulk {
  Bulk(const engine::Request& its_request, const CallCommunicator& its_place)
      : request(its_request), kept_counts(request), place(its_place) {}

  engine::Request request;
  const engine::KeptCounts kept_counts;
  const CallCommunicator place;
  Flight flight;
  bool is_made = false;  ///< True once the call has been handed to the thread.
  std::exception_ptr error;
  std::atomic<bool> has_ended{false};
};

class MpiCarrier final : public engine::Carrier {
 public:
  MpiCarrier(MpiProcess& process, CallCommunicator place, std::weak_ptr<engine::Engine> engine)
      : process_(process),
        place_(place),
        engine_(std::move(engine)),
        has_bulk_(process.level() == ThreadLevel::multiple &&
                  process.library().identity().version.starts_with("Open MPI")),
        flight_(std::make_unique<Flight>()) {}

  std::string_view name() const override { return "mpi"; }
  void check(const engine::Request& request) const override {
    if (!is_collective(request.call)) tag_of(place_, request.call);
  }
  bool runs_at_once(const engine::Request& request) const override {
    return !process_.hands_over() && !is_bulk(request);
  }

  void begin(Task& task) override;
  bool advance() override;
  void post(std::shared_ptr<Operation> message) override;
  bool advance_messages(OperationList& ended) override;
  const OperationList& messages() const override { return messages_; }
  std::shared_ptr<Operation> cancel(Operation& message) override;

  bool has_to_be_asked() const override {
    return !flying_.empty() || (runs_ && !(bulk_ && bulk_->is_made));
  }
  std::string failure() const override { return process_.failure(); }
  bool is_over() const override { return process_.is_over(); }
  bool let_go(const std::string& reason, Clock::time_point now) noexcept override;
  OperationList drop_messages() noexcept override;
  void close(bool whole) noexcept override;

 private:
  struct Flying {
    Operation* message;
    std::unique_ptr<Flight> flight;
  };

  /// True if the request uses MPI's blocking call. Depends only on values that all ranks have in
  /// common.
  bool is_bulk(const engine::Request& request) const {
    return has_bulk_ && is_collective(request.call) &&
           request.call.count * size_of(request.call.dtype) >= kBulkBytes;
  }
  bool look(Flight& flight, int looks = 1);
  bool advance_bulk();
  void make_bulk();
  bool holds_caller(Clock::time_point now);
  std::shared_ptr<Operation> take_off(std::size_t index);

  MpiProcess& process_;
  const CallCommunicator place_;
  const std::weak_ptr<engine::Engine> engine_;
  const bool has_bulk_;

  bool runs_ = false;  ///< True while a collective is in flight.
  std::unique_ptr<Flight> flight_;
  std::shared_ptr<Bulk> bulk_;  ///< Used in place of `flight_` for a blocking call.
  std::exception_ptr error_;    ///< Error of the collective, if it has failed.
  std::unique_ptr<Worker> worker_;
  OperationList messages_;
  std::vector<Flying> flying_;  ///< The flight of each message in `messages_`.
  std::vector<std::unique_ptr<Flight>> spare_;
  /// Set once the group has failed: the time at which calls that have not ended are abandoned.
  Clock::time_point last_moment_ = Clock::time_point::max();
};

bool MpiCarrier::look(Flight& flight, int looks) {
  bool ended = false;
  process_.call([&] {
    while (looks-- > 0 && !ended) ended = flight.test();
  });
  return ended;
}

/// Does not throw an error of MPI. Every later call of advance() throws the error instead.
void MpiCarrier::begin(Task& task) {
  runs_ = true;
  error_ = nullptr;
  try {
    if (process_.is_over()) throw Error(process_.failure());
    if (is_bulk(task)) {
      bulk_ = std::make_shared<Bulk>(task, place_);
      bulk_->flight.gather(place_);
    } else {
      process_.call([&] { flight_->begin(place_, task); });
    }
  } catch (...) {
    error_ = std::current_exception();
  }
}

bool MpiCarrier::advance() {
  if (error_) [[unlikely]]
    std::rethrow_exception(error_);
  try {
    if (bulk_ ? !advance_bulk() : !look(*flight_, kLooks)) return false;
    process_.call([&] { (bulk_ ? bulk_->flight : *flight_).land(); });
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
  runs_ = false;
  if (bulk_) bulk_.reset();
  return true;
}

bool MpiCarrier::advance_bulk() {
  if (!bulk_->is_made) {
    if (look(bulk_->flight)) make_bulk();
    return false;
  }
  if (!bulk_->has_ended.load(std::memory_order_acquire)) return false;
  if (bulk_->error) std::rethrow_exception(bulk_->error);
  return true;
}

/// Makes the blocking call on the thread of `worker_`. That thread does not hold the engine's lock
/// while MPI blocks, so that the engine can make progress.
void MpiCarrier::make_bulk() {
  if (!worker_) worker_ = std::make_unique<Worker>("mccl-mpi-bulk");
  bulk_->is_made = true;
  worker_->take([bulk = bulk_, engine = engine_] {
    try {
      bulk->flight.begin(bulk->place, bulk->request, true);
      while (!bulk->flight.test()) {
      }
    } catch (...) {
      bulk->error = std::current_exception();
    }
    bulk->has_ended.store(true, std::memory_order_release);
    if (const auto awake = engine.lock()) awake->wake();
  });
}

void MpiCarrier::post(std::shared_ptr<Operation> message) {
  if (process_.is_over()) throw Error(process_.failure());
  std::unique_ptr<Flight> flight;
  if (spare_.empty()) {
    flight = std::make_unique<Flight>();
  } else {
    flight = std::move(spare_.back());
    spare_.pop_back();
  }
  message->traffic = {
      .bytes_sent = message->in.bytes(), .bytes_received = message->out.bytes(), .carried = true};
  flying_.push_back({message.get(), std::move(flight)});
  messages_.push_back(std::move(message));
  const Flying& own = flying_.back();
  process_.call([&] { own.flight->begin(place_, *own.message); });
}

bool MpiCarrier::advance_messages(OperationList& ended) {
  bool moved = false;
  for (std::size_t i = 0; i < flying_.size();) {
    Flight& flight = *flying_[i].flight;
    if (!look(flight)) {
      ++i;
      continue;
    }
    process_.call([&] { flight.land(); });
    if (flying_[i].message->call.collective == Collective::recv)
      flying_[i].message->received_from(GroupRank(flight.source()));
    ended.push_back(take_off(i));
    moved = true;
  }
  return moved;
}

/// Removes and returns the message at this index of `flying_`. Its flight must have ended.
std::shared_ptr<Operation> MpiCarrier::take_off(std::size_t index) {
  constexpr std::size_t kMostSpare = 64;
  Flying landed = std::move(flying_[index]);
  flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(index));
  if (spare_.size() < kMostSpare) spare_.push_back(std::move(landed.flight));
  return messages_.remove(*landed.message);
}

std::shared_ptr<Operation> MpiCarrier::cancel(Operation& message) {
  if (message.call.collective != Collective::recv) return nullptr;
  const auto found = std::ranges::find(flying_, &message, &Flying::message);
  if (found == flying_.end()) return nullptr;
  Flight& flight = *found->flight;
  process_.call([&] { flight.cancel(); });
  if (!look(flight, kLooksToTakeBack)) return nullptr;
  if (flight.taken_back()) return take_off(static_cast<std::size_t>(found - flying_.begin()));
  message.deadline = Clock::time_point::max();
  return nullptr;
}

bool MpiCarrier::let_go(const std::string& reason, Clock::time_point now) noexcept {
  if (!runs_ && flying_.empty()) return true;
  const bool is_first = last_moment_ == Clock::time_point::max();
  if (is_first) last_moment_ = now + kLastMoment;
  if (bulk_ && bulk_->is_made && is_first) last_moment_ = now + kLastMomentOfThreads;
  process_.note_trouble();
  bool held = false;
  try {
    if (!process_.is_over()) {
      process_.call([&] {
        for (Flying& each : flying_) {
          if (is_first) each.flight->cancel();
        }
      });
      held = holds_caller(now);
    }
    if (held && now < last_moment_) return false;
    if (held) process_.end_for_good(reason);
    if (runs_ && !bulk_) keep_for_ever(std::exchange(flight_, std::make_unique<Flight>()));
    if (bulk_) keep_for_ever(std::exchange(bulk_, nullptr));
    for (Flying& each : flying_) keep_for_ever(std::move(each.flight));
  } catch (const std::exception& error) {
    process_.end_for_good(error.what());
  }
  runs_ = false;
  flying_.clear();
  return true;
}

/// Called after the group has failed. Returns true while MPI may still write into memory of the
/// callers, or while another rank may be in a blocking call whose barrier this rank has entered. If
/// that barrier has ended, first starts this rank's blocking call, so that the other ranks' calls
/// can end.
bool MpiCarrier::holds_caller(Clock::time_point now) {
  const auto holds = [this](Flight& flight) {
    try {
      return !look(flight, kLooks) && flight.holds_caller();
    } catch (const Error&) {
      // One request has failed, but other requests of the flight may still run.
      return flight.holds_caller();
    }
  };
  bool held = false;
  for (const Flying& each : flying_) held |= holds(*each.flight);
  if (!runs_ || error_) return held;
  if (!bulk_) return holds(*flight_) || held;
  if (!bulk_->is_made) {
    if (!look(bulk_->flight, kLooks)) return now < last_moment_ || held;
    make_bulk();
    last_moment_ = now + kLastMomentOfThreads;
  }
  return !bulk_->has_ended.load(std::memory_order_acquire) || held;
}

OperationList MpiCarrier::drop_messages() noexcept { return std::exchange(messages_, {}); }

void MpiCarrier::close(bool whole) noexcept {
  if (!whole || process_.is_over()) return;
  try {
    Handle comm = place_.comm;
    process_.call([&] { process_.library().Comm_free(&comm); });
  } catch (const std::exception&) {
    process_.note_trouble();
  }
}

}  // namespace

std::unique_ptr<engine::Carrier> make_carrier(Group& group, const std::vector<int>& members,
                                              std::chrono::milliseconds patience,
                                              std::weak_ptr<engine::Engine> engine) {
  MpiProcess& process = MpiProcess::get({});
  CallCommunicator place = make_communicator(group, process, members, patience);
  place.most = most_in_a_call;
  return std::make_unique<MpiCarrier>(process, place, std::move(engine));
}

void count_at_most(std::size_t most) { most_in_a_call = most; }

}  // namespace mccl::mpi
