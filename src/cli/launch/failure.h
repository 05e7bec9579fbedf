// Failures of a job: ranks that failed, and hosts with which the launcher lost contact.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cli/kit/process.h"
#include "cli/launch/job.h"

namespace mccl::cli::launch {

struct RankFailure {
  int rank = 0;
  std::string host;
  Exit exit;
};

/// Returns the first cause among failures, in the order of detection. A rank that was killed makes
/// other ranks fail, and those failures may be noticed first. So lost hosts take precedence, then
/// killed ranks.
const RankFailure& first_cause(const std::vector<RankFailure>& failures);

/// True if a signal ended the process, as after a crash or a kill command.
bool killed(const Exit& exit);

/// Returns text such as "exited with status 3" or "was killed by signal 9 (Killed)".
std::string text_of(const Exit& exit);
/// Returns which rank failed, where and how.
std::string text_of(const RankFailure& failure, int ranks);

/// A failure between the launcher and a host while ranks ran there.
struct Trouble {
  /// True if it ended ranks of the host, whatever their exit status.
  bool ranks_lost = false;
  std::string text;  ///< Message for the user: what was seen, what it means, what to do.
};

/// Records the messages between the launcher and one host. The launcher sends a beat every second,
/// and the host answers each beat.
class Contact {
 public:
  using Time = Clock::time_point;

  /// The host ends its ranks after `silence` without a beat. ssh ends after `silence` without an
  /// answer.
  Contact(const Host& host, std::chrono::seconds silence) : host_(host), silence_(silence) {}

  /// Records that a beat is sent now, and was due at `due`.
  void beat(Time due, Time now);
  void answered(Time now) { answered_ = now; }
  /// Records the host's report that it ended its ranks because no beat arrived.
  void ended_there();
  /// Records the host's report that a rank has ended. While the job ends, it counts as an answer.
  void rank_ended(Time now);
  bool was_ended_there() const { return ended_there_; }
  /// Records that ssh has ended while ranks ran on the host, and ssh's standard error.
  void broke(Time now, const std::string& complaint) { end({now, answered_, true, complaint}); }
  /// Records that the launcher ends the job while ranks run on the host.
  void ending(Time now) { end({now, answered_, false, {}}); }

  /// Returns the failure, or nothing if messages passed until the job was ended.
  std::optional<Trouble> trouble() const;

 private:
  struct End {
    Time time;
    Time answered;  ///< Time of the host's last answer before the end.
    bool broken;    ///< True if ssh has ended.
    std::string complaint;

    bool in_silence() const;
  };

  /// Only the first call has an effect.
  void end(End end) {
    if (!end_) end_ = std::move(end);
  }
  Trouble ended_there_for_silence() const;
  std::string advice() const;

  const Host host_;
  const std::chrono::seconds silence_;
  Time answered_ = {};
  Clock::duration stood_still_ = {};  ///< Longest time by which a beat was sent late.
  bool ended_there_ = false;
  std::optional<End> end_;
};

/// Returns the time without messages after which launcher and host give up on each other: `asked`
/// (in seconds), or else twice the liveness interval of rank 0, and at least 5 s more than it: TCP
/// doubles the pauses between its retransmissions during an outage, so data may arrive only after
/// twice the length of the outage. Throws InvalidArgument if `asked` does not exceed the interval:
/// an outage that ranks survive must not end the job.
std::chrono::seconds silence_of(const Job& job, const Variables& inherited,
                                const std::optional<int>& asked);

}  // namespace mccl::cli::launch
