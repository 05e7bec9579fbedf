// One run of a job. The same store may have served earlier runs, whose processes may have died or
// may still be trying to join. An Incarnation keeps the runs apart, because the run's name is part
// of every key that is used through it.
//
//   rank r                                        rank 0
//   takes the next arrival number n
//   writes under n that it is rank r          ->  answers n with the incarnation's name, made by
//                                             <-  rank 0, and rank 0's world size and settings
//   increments the counter of (name, r): the first process is rank r, a second gets an error
//
// Rank 0 answers every process that no earlier rank 0 has answered, and every process that arrives
// while the ranks connect. A process that died before it was answered does not occupy its rank.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "mccl/config.h"
#include "mccl/error.h"
#include "mccl/store.h"
#include "rendezvous/connections/names.h"

namespace mccl::rendezvous {

/// Returns JoinRequest::agreement, which also says whether a job key is set.
std::string agreement_of_arrival(const Config& config);

/// A process that joins through a store.
struct JoinRequest {
  int rank = 0;
  int size = 1;
  std::string agreement;    ///< Settings that must be equal on all ranks, as "name=value" lines.
  std::string advice = {};  ///< Appended to rank 0's error about ranks that have not arrived.
  /// Called once, during a wait, if another process also joined as this rank. May be null.
  std::function<void(const std::string& process)> on_second = {};
};

/// Store key of the counter of reigns. A reign is the time during which one process is rank 0.
inline constexpr const char* kReigns = "mccl/reigns";

/// Returns the store's key of an entry of the run `name` of a job.
std::string key_of_run(const std::string& name, const std::string& key);

/// Returns the key, within a run, of the description of the process that has a rank.
std::string who_key(int rank);

/// A run whose ranks have all connected.
struct RunThatMet {
  std::string name;
  std::string description;  ///< "3 ranks connected through this store, with ... as rank 0".
};
/// Returns the last run whose ranks have connected through the store.
std::optional<RunThatMet> find_run_that_met(Store& store);

/// Describes this process by its process id and its host: "process 12 on desk".
std::string this_process();

/// The store of this run of the job. Its keys are separate from those of all other runs, and a wait
/// ends early if another rank fails. Thread-safe once constructed.
class Incarnation final : public Store {
 public:
  /// Joins the run. Throws TimeoutError if rank 0 does not arrive in time, or, on rank 0, if
  /// another rank does not arrive in time; MismatchError if ranks have different world sizes or
  /// settings; InvalidArgument if another process has already joined as this rank. For `watch` see
  /// watch_with(). Waits end `last_answers` before `timeout`, so that the store can still be asked
  /// which ranks are missing.
  Incarnation(std::shared_ptr<Store> store, JoinRequest self, milliseconds timeout,
              std::function<void()> watch = {}, milliseconds last_answers = {});

  const std::string& name() const { return name_; }

  void set(const std::string& key, std::string_view value) override;
  /// In addition to the errors of Store::get(), throws PeerError or MismatchError if another rank
  /// has failed; the message names that rank.
  std::string get(const std::string& key, milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;

  /// Makes every wait call `watch` repeatedly. An exception from `watch` ends the wait.
  void watch_with(std::function<void()> watch) { watch_ = std::move(watch); }
  /// Throws if another rank failed or rank 0 was restarted. On rank 0, also answers new arrivals.
  void look();
  /// Must be called once this rank is connected to all others. From then on, look() ignores
  /// processes that arrive, also as rank 0: they belong to another run of the job.
  void close();
  /// Reports to the other ranks that this rank has failed, and why, so that they also fail. Rank 0
  /// may serve the store, so it waits a limited time for the other ranks to read the report.
  void fail(const std::exception& error) noexcept;

 private:
  template <typename Call>
  auto ask(const Call& call);
  std::string own(const std::string& key) const { return key_of_run(name_, key); }
  void reign(Clock::time_point deadline);
  void join(Clock::time_point deadline);
  void register_self();
  void report_second();
  void answer(std::int64_t arrival);
  void answer_all();
  void throw_failure();
  /// Throws if another process has become rank 0.
  void throw_if_reign_ended();
  void throw_death();
  std::vector<bool> who_has_come(std::int64_t after, std::int64_t last) const;

  const std::shared_ptr<Store> store_;
  const JoinRequest self_;
  const double timeout_s_;
  const milliseconds slice_;  ///< Interval between calls of look() during a wait.
  std::string name_;
  std::function<void()> watch_;
  std::atomic<bool> knows_failure_ = false;
  /// True if the store has ended with rank 0. Another request would wait for a later run's rank 0.
  std::atomic<bool> store_ended_ = false;
  bool has_reported_second_ = false;
  std::int64_t reign_ = 0;  ///< Value of the counter kReigns in this run.
  bool closed_ = false;     ///< See close().
  // The following are used on rank 0 only.
  /// Number of arrivals that have been answered by rank 0 of this run or of earlier runs.
  std::int64_t answered_ = 0;
  std::int64_t answered_before_ = 0;
  std::int64_t deaths_before_ = 0;
};

}  // namespace mccl::rendezvous
