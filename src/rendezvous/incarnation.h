// One start of a job. A store may have served other starts before: of the same ranks, and of
// processes that died, or still try to join. An incarnation keeps them apart.
//
//   rank r                                      rank 0
//   counts itself: it is arrival n
//   says under n that it is rank r         ->   answers n with the incarnation's name, which it
//   made,
//                                          <-   and with its own number of ranks and settings
//   counts itself under name and r: the first is rank r, a second one is told so
//
// Rank 0 answers every process that no earlier rank 0 has answered, and every process that comes
// while the ranks meet. A process that died before its answer came takes no rank's place.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "mccl/config.h"
#include "mccl/error.h"
#include "mccl/store.h"

namespace mccl::rendezvous {

/// What an Arrival says of the settings: beside those that must be equal, whether there is a key.
std::string agreement_of_arrival(const Config& config);

/// A process as it comes to a store.
struct Arrival {
  int rank = 0;
  int size = 1;
  std::string agreement;  ///< Settings that must be equal, "name=value" lines.
};

/// A counter in the store: how often a rank 0 has come. Earlier deaths belong to another start.
inline constexpr const char* kReigns = "mccl/reigns";

/// "process 12 on desk".
std::string this_process();

/// The store of this start: its keys are no other start's, and a wait ends when another rank has
/// failed. Thread-safe once it is made.
class Incarnation final : public Store {
 public:
  /// Throws TimeoutError when rank 0, or to rank 0 somebody, does not come in time; MismatchError
  /// when ranks were told different things; InvalidArgument when another process is this rank.
  /// `watch`: as watch_with. The waits end `last_answers` before the timeout, so that the store can
  /// still be asked who is missing.
  Incarnation(std::shared_ptr<Store> store, Arrival self, std::chrono::milliseconds timeout,
              std::function<void()> watch = {}, std::chrono::milliseconds last_answers = {});

  const std::string& name() const { return name_; }

  void set(const std::string& key, std::string_view value) override;
  /// Throws what another rank failed with, as PeerError or MismatchError that names it.
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;

  /// Every wait calls `watch` repeatedly, and ends with what it throws.
  void watch_with(std::function<void()> watch) { watch_ = std::move(watch); }
  /// Throws when another rank has failed. On rank 0, also answers the processes that have come.
  void look();
  /// Processes that come to rank 0 from now on belong to another start.
  void close();
  /// Tells the other ranks that this rank has failed, and why, so that they fail too. Rank 0 may
  /// serve the store, so it waits a while for them to read it.
  void fail(const std::exception& error) noexcept;

 private:
  template <typename Call>
  auto ask(const Call& call);
  std::string own(const std::string& key) const { return "mccl/" + name_ + "/" + key; }
  void reign(Clock::time_point deadline);
  void join(Clock::time_point deadline);
  void register_self();
  void answer(std::int64_t arrival);
  void answer_all();
  void throw_failure();
  void throw_death();
  std::vector<bool> who_has_come(std::int64_t after, std::int64_t last) const;
  std::string who_came_in_vain() const;
  std::string who_has_met() const;

  const std::shared_ptr<Store> store_;
  const Arrival self_;
  const double timeout_s_;
  const std::chrono::milliseconds slice_;  ///< Of a wait, between two looks.
  std::string name_;
  std::function<void()> watch_;
  std::atomic<bool> was_told_ = false;  ///< Of a failure.
  /// The store has ended with rank 0. Another request would wait for the next start.
  std::atomic<bool> store_ended_ = false;
  std::int64_t reign_ = 0;  ///< Of the rank 0 that made the name.
  // Rank 0's:
  std::int64_t answered_ = 0;  ///< Arrivals, by this rank 0 and those before it.
  std::int64_t answered_before_ = 0;
  std::int64_t deaths_before_ = 0;
  bool closed_ = false;
};

}  // namespace mccl::rendezvous
