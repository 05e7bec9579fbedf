// Tracks whether messages pass between the launcher and a host, so that network failures are
// reported as such.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "cli/launch/host.h"

namespace mccl::cli::launch {

/// A failure between the launcher and a host while ranks ran there.
struct Trouble {
  /// True if the failure ended ranks of the host, whatever their exit status.
  bool ranks_lost = false;
  std::string text;  ///< Message for the user: what was seen, what it means, what to do.
};

/// Records the messages between the launcher and one host. The launcher sends a beat every second,
/// and the host answers each.
class Contact {
 public:
  using Time = Clock::time_point;

  /// The host ends its ranks after `silence` without a beat. ssh ends after `silence` without an
  /// answer.
  Contact(const Host& host, std::chrono::seconds silence) : host_(host), silence_(silence) {}

  /// Called when a beat is sent that was due at `due`.
  void beat(Time due, Time now);
  void answered(Time now) { answered_ = now; }
  /// Called when the host reports that it ended its ranks because no beat arrived.
  void ended_there();
  /// Called when the host reports the end of a rank. After the job was ended, this counts as an
  /// answer.
  void rank_ended(Time now);
  bool was_ended_there() const { return ended_there_; }
  /// Called when ssh has ended while ranks ran there. `complaint` is its standard error.
  void broke(Time now, const std::string& complaint) { end({now, answered_, true, complaint}); }
  /// Called when the launcher ends the job while ranks run there.
  void ending(Time now) { end({now, answered_, false, {}}); }

  /// Returns the failure, or nothing if messages passed until the job was ended.
  std::optional<Trouble> trouble() const;

 private:
  struct End {
    Time time;
    Time answered;  ///< Time of the last answer before the end.
    bool broken;
    std::string complaint;

    bool in_silence() const;
  };

  /// Ignores all calls after the first.
  void end(End end) {
    if (!end_) end_ = std::move(end);
  }
  Trouble ended_there_for_silence() const;
  std::string advice() const;

  const Host host_;
  const std::chrono::seconds silence_;
  Time answered_ = {};
  Clock::duration stood_still_ = {};  ///< The longest delay of a beat.
  bool ended_there_ = false;
  std::optional<End> end_;
};

}  // namespace mccl::cli::launch
