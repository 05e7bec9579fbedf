#include "backend/mpi/carrier.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <map>
#include <utility>
#include <vector>

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

/// Minimum size in bytes of the collectives before which ranks compare their calls. Messages above
/// Open MPI's eager limit (4 KiB by default) are read from the memory of the sending process, and
/// Open MPI 4.1 then does not check the size of the receiver's memory. So calls that differ could
/// destroy memory of the program.
constexpr std::size_t kComparedBytes = 2048;
/// Minimum size in bytes of collectives that use Open MPI's blocking functions, on another thread.
/// Open MPI's nonblocking functions are half as fast, which costs more than the handover to that
/// thread. MPICH does not have this difference.
constexpr std::size_t kBulkBytes = std::size_t{1} << 20;
/// Time for which a failed group waits for its calls in flight, which use the program's memory. If
/// some have not ended by then, this process stops using MPI. MPI soon completes a call that all
/// ranks have begun.
constexpr std::chrono::milliseconds kLastMoment{1000};
/// Time limit that replaces kLastMoment if this rank's comparison has not ended: other ranks may
/// have finished it, and then wait for this rank in the call. Once all ranks have begun a
/// comparison, it takes only microseconds.
constexpr std::chrono::milliseconds kLastMomentOfComparison{250};
/// Time limit that replaces kLastMoment if a thread is in a blocking call, which cannot be
/// cancelled.
constexpr std::chrono::milliseconds kLastMomentOfThreads{10'000};
/// Maximum number of times that one advance() tests whether a collective has ended. Several tests
/// are worthwhile, because the rest of advance() takes as long as one test.
constexpr int kLooks = 32;

std::atomic<std::size_t> most_in_a_call{std::numeric_limits<int>::max()};

/// A collective of kComparedBytes or more. The ranks first compare their calls, and make MPI's call
/// only if all calls are equal. If it is MPI's blocking call, a thread makes it, with which this
/// object is shared and which may outlive the group.
struct Compared {
  Compared(const engine::Request& its_request, const CallCommunicator& its_place, bool its_waits)
      : request(its_request), kept_counts(request), place(its_place), waits(its_waits) {}

  engine::Request request;
  const engine::KeptCounts kept_counts;
  const CallCommunicator place;
  const bool waits;  ///< True if MPI's blocking call is used.
  Flight flight;     ///< The comparison and, once `is_made` is true, the call.
  bool is_made = false;
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

  bool has_to_be_asked() const override { return !flying_.empty() || (runs_ && !is_on_thread()); }
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
  /// True if the ranks compare their calls before this one. Depends only on values that all ranks
  /// have in common. If only some ranks compare a call, because the calls differ, the comparison
  /// never ends, and the engine compares the calls after a second.
  bool is_compared(const engine::Request& request) const {
    return place_.size > 1 && is_collective(request.call) &&
           request.call.count * size_of(request.call.dtype) >= kComparedBytes;
  }
  bool is_on_thread() const { return compared_ && compared_->waits && compared_->is_made; }
  bool look(Flight& flight, int looks = 1);
  bool advance_compared();
  void make_compared();
  Flight& flight() { return compared_ ? compared_->flight : *flight_; }
  bool holds_caller(Clock::time_point now);
  std::shared_ptr<Operation> take_off(std::size_t index);

  MpiProcess& process_;
  const CallCommunicator place_;
  const std::weak_ptr<engine::Engine> engine_;
  const bool has_bulk_;

  bool runs_ = false;  ///< True while a collective is in flight.
  std::unique_ptr<Flight> flight_;
  std::shared_ptr<Compared> compared_;  ///< Used in place of `flight_` for a compared call.
  std::exception_ptr error_;            ///< Error of the collective, if it has failed.
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
    if (is_compared(task)) {
      compared_ = std::make_shared<Compared>(task, place_, is_bulk(task));
      process_.call([&] { compared_->flight.compare(place_, fingerprint_of(task.call)); });
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
    if (compared_ ? !advance_compared() : !look(*flight_, kLooks)) return false;
    process_.call([&] { flight().land(); });
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
  runs_ = false;
  if (compared_) compared_.reset();
  return true;
}

bool MpiCarrier::advance_compared() {
  if (!compared_->is_made) {
    if (!look(compared_->flight, kLooks)) return false;
    if (!compared_->flight.agrees()) throw engine::CallsDiffer();
    make_compared();
  }
  if (!compared_->waits) return look(compared_->flight, kLooks);
  if (!compared_->has_ended.load(std::memory_order_acquire)) return false;
  if (compared_->error) std::rethrow_exception(compared_->error);
  return true;
}

/// Makes MPI's call. A blocking call is made on the thread of `worker_`. That thread does not hold
/// the engine's lock while MPI blocks, so that the engine can make progress.
void MpiCarrier::make_compared() {
  compared_->is_made = true;
  if (!compared_->waits) {
    process_.call([&] { compared_->flight.begin(place_, compared_->request); });
    return;
  }
  if (!worker_) worker_ = std::make_unique<Worker>("mccl-mpi-bulk");
  worker_->take([bulk = compared_, engine = engine_, &process = process_] {
    try {
      bulk->flight.begin(bulk->place, bulk->request, true);
      while (!bulk->flight.test() && !process.is_over()) {
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

/// If two receives could get the same message, the one that was posted first must get it, as MPI
/// requires. So a receive is tested only for messages that no earlier one can get.
bool MpiCarrier::advance_messages(OperationList& ended) {
  const int any_source = process_.library().abi().any_source;
  // The peers of earlier receives with each tag. A receive whose message arrives in this pass
  // counts until the next pass.
  std::map<int, std::vector<int>> claimed;
  const auto is_claimed = [&](Flight& flight) {
    const Receive* const own = flight.awaits();
    if (!own) return false;
    std::vector<int>& peers = claimed[own->tag];
    const auto is_peer = [&](int peer) { return std::ranges::find(peers, peer) != peers.end(); };
    if (is_peer(any_source) || is_peer(own->peer)) return true;
    if (own->peer == any_source) flight.ignore(peers);
    peers.push_back(own->peer);
    return false;
  };
  bool moved = false;
  for (std::size_t i = 0; i < flying_.size();) {
    Flight& flight = *flying_[i].flight;
    if (is_claimed(flight) || !look(flight)) {
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
  if (found->flight->awaits()) return take_off(static_cast<std::size_t>(found - flying_.begin()));
  message.deadline = Clock::time_point::max();
  return nullptr;
}

bool MpiCarrier::let_go(const std::string& reason, Clock::time_point now) noexcept {
  if (!runs_ && flying_.empty()) return true;
  if (last_moment_ == Clock::time_point::max()) {
    last_moment_ = now + (is_on_thread()                     ? kLastMomentOfThreads
                          : compared_ && !compared_->is_made ? kLastMomentOfComparison
                                                             : kLastMoment);
  }
  process_.note_trouble();
  try {
    for (Flying& each : flying_) each.flight->cancel();
    if (runs_ && !is_on_thread()) flight().cancel();
    const bool held = !process_.is_over() && holds_caller(now);
    if (held && now < last_moment_) return false;
    if (held) process_.end_for_good(reason);
  } catch (const std::exception& error) {
    process_.end_for_good(error.what());
  }
  // MPI may still use the memory of the flights.
  if (runs_ && !compared_) keep_for_ever(std::exchange(flight_, std::make_unique<Flight>()));
  if (compared_) keep_for_ever(std::exchange(compared_, nullptr));
  for (Flying& each : flying_) keep_for_ever(std::move(each.flight));
  runs_ = false;
  flying_.clear();
  return true;
}

/// Called after the group has failed. Returns true while MPI may still write into memory of the
/// callers, or while this rank's comparison of a call has not ended, because other ranks may have
/// finished the comparison and entered the call. If all calls are equal, first makes this rank's
/// call, so that the calls of the other ranks can end.
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
  if (!runs_) return held;
  if (compared_ && !compared_->is_made && !error_) {
    try {
      if (!look(compared_->flight, kLooks)) return now < last_moment_ || held;
    } catch (const Error&) {
      error_ = std::current_exception();
      return held;
    }
    if (!compared_->flight.agrees()) return held;
    make_compared();
    last_moment_ = now + (compared_->waits ? kLastMomentOfThreads : kLastMoment);
  }
  if (!is_on_thread()) return holds(flight()) || held;
  return !compared_->has_ended.load(std::memory_order_acquire) || held;
}

OperationList MpiCarrier::drop_messages() noexcept { return std::exchange(messages_, {}); }

void MpiCarrier::close(bool whole) noexcept {
  if (!whole || process_.is_over()) return;
  try {
    Handle comm = place_.comm;
    Handle comparisons = place_.comparisons;
    process_.call([&] {
      process_.library().Comm_free(&comparisons);
      process_.library().Comm_free(&comm);
    });
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
