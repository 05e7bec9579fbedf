#include "rendezvous/store/incarnation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "base/rank_path.h"
#include "base/value_text.h"
#include "rendezvous/connections/handshake.h"
#include "rendezvous/connections/proof.h"
#include "rendezvous/connections/wire.h"
#include "rendezvous/store/exchange.h"
#include "rendezvous/store/memory_store.h"

namespace mccl::rendezvous {
namespace {

constexpr const char* kArrivals = "mccl/arrivals";
constexpr const char* kAnswered = "mccl/answered";
constexpr const char* kMet = "mccl/met";
constexpr const char* kFailures = "failures";
constexpr const char* kFailure = "failure";
constexpr const char* kTold = "told";

/// Intervals at which a wait is interrupted to check whether another rank has failed. Rank 0 checks
/// more often, because all other ranks wait for rank 0.
constexpr milliseconds kSliceOfRank0 = 100ms;
constexpr milliseconds kSlice = 250ms;
/// Added to kSlice for each rank of the job, because all ranks ask the same store.
constexpr milliseconds kSliceOfEach = 2ms;
/// Time limit for reading an entry whose counter, which the writer increments first, counts it.
constexpr milliseconds kMoment = 1s;
/// Time limit for a last read of an entry before the failure of a peer is thrown. If the peer has
/// not failed, but finished and left, the entry is already in the store.
constexpr milliseconds kLastLook = 100ms;
/// If the meeting fails, rank 0 waits at most kLastWords, plus kLastWordsToEach per rank (many
/// ranks may share few cores), until the other ranks have read the reason.
constexpr milliseconds kLastWords = 500ms;
constexpr milliseconds kLastWordsToEach = 5ms;
/// Limit used instead if some ranks have not arrived yet, which would otherwise find no store.
constexpr milliseconds kLastWordsToAbsent = 5s;

/// Maximum number of characters of another rank's reason that are shown.
constexpr std::size_t kLongestReason = 2048;

/// Maximum number of arrivals that rank 0 answers in one look. Another process may have raised the
/// counter of arrivals, which must not keep rank 0 from noticing its deadline.
constexpr int kMostAnswers = 1024;
/// who_has_come() reads at most kArrivalsOfRank entries for each rank, and kMoreArrivals in total.
constexpr std::int64_t kArrivalsOfRank = 2, kMoreArrivals = 64;

std::string arrival_key(std::int64_t n) { return fmt::format("mccl/arrival/{}", n); }
std::string welcome_key(std::int64_t n) { return fmt::format("mccl/welcome/{}", n); }

/// Entry in which a rank 0 names itself when another process, the n-th, has joined as rank 0 too.
std::string replaced_key(std::int64_t n) { return fmt::format("mccl/replaced by/{}", n); }

/// Returns the text of `error` without its prefix, because other ranks add a prefix of their own.
std::string_view reason_of(const std::exception& error, int rank) {
  std::string_view text = error.what();
  const std::string prefix = fmt::format("rank {} cannot join the job: ", rank);
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  return text;
}

/// Parses a rank or a number of ranks. Returns -1 if `text` is neither.
int number_of(std::string_view text) {
  const auto number = parse_integer(text).value_or(-1);
  return number >= 0 && number <= std::numeric_limits<int>::max() ? static_cast<int>(number) : -1;
}

}  // namespace

std::string key_of_run(const std::string& name, const std::string& key) {
  return "mccl/" + name + "/" + key;
}

std::string who_key(int rank) { return fmt::format("who/{}", rank); }

std::optional<RunThatMet> find_run_that_met(Store& store) {
  const auto found = find_now(store, kMet);
  if (!found) return {};
  std::string_view description = *found;
  const std::string name(next_part(description, '\n'));
  return RunThatMet{name, std::string(description)};
}

std::string this_process() { return fmt::format("process {} on {}", ::getpid(), host_name()); }

std::string agreement_of_arrival(const Config& config) {
  return agreement_of(config) + (config.job_key.empty() ? "job_key=not set\n" : "job_key=set\n");
}

Incarnation::Incarnation(std::shared_ptr<Store> store, JoinRequest self, milliseconds timeout,
                         std::function<void()> watch, milliseconds last_answers)
    : store_(std::move(store)),
      self_(std::move(self)),
      timeout_s_(std::chrono::duration<double>(timeout).count()),
      slice_(self_.rank == 0 ? kSliceOfRank0 : kSlice + self_.size * kSliceOfEach),
      watch_(std::move(watch)) {
  const Clock::time_point deadline = Clock::now() + timeout - last_answers;
  try {
    self_.rank == 0 ? reign(deadline) : join(deadline);
  } catch (const std::exception& error) {
    fail(error);
    throw;
  }
}

/// Rank 0 only: answers every process that arrives, until it has answered as many as there are
/// other ranks. Some of these may be dead, or share a rank, so look() also answers later arrivals.
void Incarnation::reign(Clock::time_point deadline) {
  // deaths_before_ must be read first, so that every later death counts as one of this reign, the
  // time during which this process is rank 0.
  deaths_before_ = store_->add(kDeaths, 0);
  reign_ = store_->add(kReigns, 1);
  answered_ = answered_before_ = store_->add(kAnswered, 0);
  name_ = make_random_name(kStartLetters);
  register_self();
  while (answered_ - answered_before_ < self_.size - 1) {
    const std::int64_t next = answered_ + 1;
    try {
      store_->get(arrival_key(next), std::min(slice_, left_until(deadline)));
      answer(next);
      continue;
    } catch (const TimeoutError&) {
      look();
    }
    if (Clock::now() >= deadline) {
      throw TimeoutError(fmt::format(
          "rank 0 waited {:.3g} s (MCCL_CONNECT_TIMEOUT) for all ranks to arrive at "
          "the store: {}; are those ranks running with the same store?{}",
          timeout_s_, roll_call(who_has_come(answered_before_, answered_)), self_.advice));
    }
  }
}

void Incarnation::answer_all() {
  const std::int64_t n = store_->add(kArrivals, 0);
  for (int i = 0; i < kMostAnswers && answered_ < n; ++i) answer(answered_ + 1);
}

void Incarnation::answer(std::int64_t arrival) {
  store_->set(welcome_key(arrival), fmt::format("{}\n{}\n{}", name_, self_.size, self_.agreement));
  answered_ = store_->add(kAnswered, arrival - answered_);
}

/// Ranks other than 0: registers an arrival and waits for rank 0's answer.
void Incarnation::join(Clock::time_point deadline) {
  std::int64_t arrival = 0;
  try {
    arrival = store_->add(kArrivals, 1);
  } catch (const PeerError&) {
    // The store has ended with rank 0 of an earlier run. Try once more, because rank 0 of this run
    // may be about to start.
    if (Clock::now() >= deadline) throw;
    arrival = store_->add(kArrivals, 1);
  }
  store_->set(arrival_key(arrival), std::to_string(self_.rank));
  std::string welcome;
  try {
    welcome = store_->get(welcome_key(arrival), left_until(deadline));
  } catch (const TimeoutError&) {
    // If there is such a run, this process has arrived too late, or more processes were started
    // than the job has ranks.
    const auto met = find_run_that_met(*store_);
    const auto came_in_vain = [&] {
      const std::int64_t last = store_->add(kArrivals, 0);
      return roll_call(who_has_come(store_->add(kAnswered, 0), last)) + "; ";
    };
    throw TimeoutError(fmt::format(
        "rank {} waited {:.3g} s (MCCL_CONNECT_TIMEOUT) for rank 0 to start the job: "
        "{}is rank 0 running with the same store?{}",
        self_.rank, timeout_s_, met ? "" : came_in_vain(),
        met ? fmt::format(" Earlier, {}.", printable(met->description, kLongestReason)) : ""));
  }
  reign_ = store_->add(kReigns, 0);
  std::string_view rest = welcome;
  name_ = next_part(rest, '\n');
  const int size = number_of(next_part(rest, '\n'));
  register_self();
  if (size != self_.size) {
    throw MismatchError(fmt::format(
        "rank {} was started in a job of {} ranks, but rank 0 in a job of {}; give every "
        "rank the same world size",
        self_.rank, self_.size, size));
  }
  const std::string differs = difference({0, rest}, {self_.rank, self_.agreement});
  if (!differs.empty()) {
    throw MismatchError(fmt::format("rank {} cannot join the job: {}", self_.rank, differs));
  }
}

void Incarnation::register_self() {
  const std::string who = who_key(self_.rank);
  if (add(fmt::format("present/{}", self_.rank), 1) == 1) return set(who, this_process());
  const std::string first = store_->get(own(who), kMoment);
  set(kCameTwice, fmt::format("{} also joined as rank {}", this_process(), self_.rank));
  set(fmt::format("second/{}", self_.rank), this_process());
  // Clear the name, so that fail() reports nothing: the other ranks continue without this process.
  name_.clear();
  throw InvalidArgument(
      fmt::format("rank {} exists already: it is {}, and this is {}; give every process its own "
                  "rank (MCCL_RANK), and end any process left from an earlier run",
                  self_.rank, printable(first), this_process()));
}

/// Calls on_second once if another process failed because it has the same rank as this process.
void Incarnation::report_second() {
  if (!self_.on_second || has_reported_second_) return;
  if (self_.rank != 0 && add(fmt::format("present/{}", self_.rank), 0) < 2) return;
  const auto process = find_now(
      *store_, self_.rank == 0 ? replaced_key(reign_) : own(fmt::format("second/{}", self_.rank)));
  if (!process) return;  // The other process has not yet published its description.
  has_reported_second_ = true;
  self_.on_second(*process);
}

/// Returns which ranks have arrived, indexed by rank: this rank, and the ranks with an arrival
/// number in (after, last].
std::vector<bool> Incarnation::who_has_come(std::int64_t after, std::int64_t last) const {
  std::vector<bool> present(static_cast<std::size_t>(self_.size), false);
  const auto note = [&](int rank) {
    if (rank >= 0 && rank < self_.size) present[static_cast<std::size_t>(rank)] = true;
  };
  note(self_.rank);
  last = std::min(last, after + kArrivalsOfRank * self_.size + kMoreArrivals);
  for (std::int64_t n = after + 1; n <= last; ++n)
    note(number_of(find_now(*store_, arrival_key(n)).value_or("")));
  return present;
}

template <typename Call>
auto Incarnation::ask(const Call& call) {
  try {
    return call(*store_);
  } catch (const PeerError&) {
    store_ended_ = true;
    throw;
  }
}

void Incarnation::set(const std::string& key, std::string_view value) {
  ask([&](Store& store) { store.set(own(key), value); });
}

std::int64_t Incarnation::add(const std::string& key, std::int64_t amount) {
  return ask([&](Store& store) { return store.add(own(key), amount); });
}

std::string Incarnation::get(const std::string& key, milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  for (;;) {
    try {
      return ask([&](Store& store) {
        return store.get(own(key), std::min(slice_, left_until(deadline)));
      });
    } catch (const TimeoutError&) {
      if (Clock::now() >= deadline) throw;
    }
    try {
      look();
    } catch (const PeerError&) {
      if (knows_failure_ || store_ended_) throw;
      try {
        return store_->get(own(key), kLastLook);
      } catch (const TimeoutError&) {
      }
      throw;
    }
  }
}

void Incarnation::look() {
  throw_failure();
  report_second();
  if (self_.rank == 0) throw_death();
  if (!closed_) {
    throw_if_reign_ended();
    if (self_.rank == 0) answer_all();
  }
  if (watch_) watch_();
}

void Incarnation::close() {
  closed_ = true;
  if (self_.rank != 0) return;
  store_->set(kMet, fmt::format("{}\n{} ranks connected through this store, with {} as rank 0",
                                name_, self_.size, this_process()));
}

void Incarnation::throw_if_reign_ended() {
  const std::int64_t last = ask([](Store& store) { return store.add(kReigns, 0); });
  if (last == reign_) return;
  if (self_.rank == 0) {
    store_->set(replaced_key(last), this_process());
    throw InvalidArgument(
        fmt::format("another process joined as rank 0 while this one, {}, waited for the other "
                    "ranks; give every process its own rank (MCCL_RANK)",
                    this_process()));
  }
  throw PeerError(
      fmt::format("rank {} cannot join the job: rank 0 was restarted while the ranks connected; "
                  "restart all ranks",
                  self_.rank));
}

void Incarnation::throw_failure() {
  if (add(kFailures, 0) == 0) return;
  knows_failure_ = true;
  std::string failure;
  try {
    failure = ask([this](Store& store) { return store.get(own(kFailure), kMoment); });
  } catch (const TimeoutError&) {
    throw PeerError(
        fmt::format("rank {} cannot join the job: another rank failed, and ended before it could "
                    "report the reason; see the output of the other ranks",
                    self_.rank));
  }
  std::string_view rest = failure;
  const std::string_view kind = next_part(rest, '\n');
  const int rank = number_of(next_part(rest, '\n'));
  const std::string text = fmt::format("rank {} cannot join the job, because rank {} cannot: {}",
                                       self_.rank, rank, printable(rest, kLongestReason));
  if (kind == "mismatch") throw MismatchError(text);
  throw PeerError(text);
}

/// Throws PeerError if a rank has died. Called on rank 0 only, which then reports the death to the
/// other ranks.
void Incarnation::throw_death() {
  for (const std::int64_t deaths = store_->add(kDeaths, 0); deaths_before_ < deaths;) {
    ++deaths_before_;
    const std::string death = store_->get(kDeath + std::to_string(deaths_before_), kMoment);
    std::string_view start = death;
    const std::string_view rank = next_part(start, ' ');
    // Skip a process of another run of the job: such a process may end at any time.
    if (!start.empty() && start != name_) continue;
    add(kTold, 1);  // Counts the dead rank as informed, so that fail() does not wait for it.
    throw PeerError(fmt::format("rank {} died while the ranks connected; see its last output",
                                printable(rank)));
  }
}

void Incarnation::fail(const std::exception& error) noexcept {
  // If name_ is empty, this process is not part of the run, so its failure does not concern the
  // other ranks.
  if (name_.empty() || store_ended_) return;
  try {
    if (!knows_failure_ && add(kFailures, 1) == 1) {
      const bool mismatch = dynamic_cast<const MismatchError*>(&error) != nullptr;
      set(kFailure, fmt::format("{}\n{}\n{}", mismatch ? "mismatch" : "other", self_.rank,
                                reason_of(error, self_.rank)));
    }
    std::int64_t informed = add(kTold, 1);
    const Clock::time_point begun = Clock::now();
    const auto patience = [this] {
      return answered_ - answered_before_ < self_.size - 1
                 ? kLastWordsToAbsent
                 : kLastWords + self_.size * kLastWordsToEach;
    };
    while (self_.rank == 0 && informed < self_.size && Clock::now() < begun + patience()) {
      std::this_thread::sleep_for(5ms);
      answer_all();
      informed = add(kTold, 0);
    }
  } catch (const std::exception&) {
    return;  // Without the store, the failure cannot be reported.
  }
}

}  // namespace mccl::rendezvous
