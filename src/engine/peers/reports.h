// The status reports of the other ranks, which this rank requests over the control connections when
// `mccl status` asks this rank about all ranks of the job. No reports are sent otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/rank.h"
#include "engine/peers/control.h"
#include "engine/peers/peers.h"

namespace mccl::engine {

/// Requests the reports of other ranks, and answers their requests. Used under the engine's
/// progress lock.
class Reports {
 public:
  /// Maximum size of a report in bytes.
  static constexpr std::size_t kMostBytes = std::size_t{64} << 10;
  /// If this rank's last report was made less than this time ago, it is sent again instead of a new
  /// one. Also the minimum time between two reports to one peer. Both limit the work that requests
  /// can cause.
  static constexpr std::chrono::milliseconds kFresh{20};

  /// `describe` returns this rank's own report of at most kMostBytes. `peers` must outlive this
  /// object.
  Reports(Peers& peers, std::function<std::string()> describe);

  /// Asks every connected peer for its report, and drops the reports of earlier requests. Returns a
  /// future that becomes ready once the reports of all these peers have arrived. Peers that are
  /// lost meanwhile are no longer awaited. A stopped peer does not answer, so the caller must limit
  /// its wait. The caller must not hold the progress lock while it waits.
  std::future<void> request();
  /// Returns the reports of the ranks that were asked, and ends the request. The text of a peer
  /// that has not answered is empty. The texts come from other processes and are not checked.
  std::map<WorldRank, std::string> take();

  /// Called when a peer is lost or has left. Its report is no longer awaited, and its requests are
  /// dropped.
  void forget(WorldRank peer);
  /// Handles a request for this rank's report, or a piece of a peer's report. Throws
  /// CorruptionError if the report of a peer is longer than kMostBytes.
  void hear(WorldRank peer, const ControlMessage& message, Clock::time_point now);
  /// Answers the requests that arrived less than kFresh after the last report to the same peer and
  /// have now waited long enough. Of several requests of a peer, only the last is answered.
  void answer_late(Clock::time_point now);
  /// Time at which answer_late() must be called next; Clock::time_point::max() if no request waits.
  Clock::time_point next_answer() const { return next_answer_; }

 private:
  struct Answer {
    bool is_complete = false;
    std::string text;
  };

  /// The requests of one peer.
  struct Asker {
    Clock::time_point not_before;        ///< Earliest time of the next report to the peer.
    std::optional<std::uint64_t> waits;  ///< Number of the peer's last request, if unanswered.
  };

  void answer(WorldRank peer, std::uint64_t round, Clock::time_point now);

  Peers& peers_;
  const std::function<std::string()> describe_;
  std::string own_;
  Clock::time_point made_;  ///< Time at which `own_` was made.
  std::map<WorldRank, Asker> askers_;
  Clock::time_point next_answer_ = Clock::time_point::max();
  std::uint64_t round_ = 0;
  std::map<WorldRank, Answer> answers_;  ///< Answers of the ranks that were asked.
  std::size_t missing_ = 0;              ///< Number of awaited reports that are not complete.
  std::promise<void> complete_;          ///< Made ready when `missing_` becomes 0.
};

}  // namespace mccl::engine
