// Whether words pass between the launcher and a host, so that the network is named where it fails.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "cli/launch/host.h"

namespace mccl::cli::launch {

/// What went wrong between the launcher and a host while ranks ran there.
struct Trouble {
  bool ranks_lost = false;  ///< It ended ranks of the host, whatever their exit status says.
  std::string text;         ///< For people: what was seen, what it means, what to do.
};

/// The launcher sends a beat every second, and the host answers each.
class Contact {
 public:
  using Time = Clock::time_point;

  /// After `silence` without a beat the host ends its ranks, and without an answer ssh ends.
  Contact(const Host& host, std::chrono::seconds silence) : host_(host), silence_(silence) {}

  /// A beat is sent now that should have been sent at `due`.
  void beat(Time due, Time now);
  void answered(Time now) { answered_ = now; }
  /// The host says that it was without a beat for so long that it ended its ranks.
  void ended_there();
  /// How a rank ended has come from there. After the job was ended, that is an answer too.
  void rank_ended(Time now);
  bool was_ended_there() const { return ended_there_; }
  /// ssh ended while ranks ran there; `complaint` is what it wrote to standard error.
  void broke(Time now, const std::string& complaint) { end({now, answered_, true, complaint}); }
  /// The launcher ends the job while ranks run there.
  void ending(Time now) { end({now, answered_, false, {}}); }

  /// Nothing where words passed until the job was ended.
  std::optional<Trouble> trouble() const;

 private:
  struct End {
    Time time;
    Time answered;  ///< The last answer before.
    bool broken;
    std::string complaint;

    bool in_silence() const;
  };

  /// Only the first counts.
  void end(End end) {
    if (!end_) end_ = std::move(end);
  }
  Trouble ended_there_for_silence() const;
  std::string advice() const;

  const Host host_;
  const std::chrono::seconds silence_;
  Time answered_ = {};
  Clock::duration stood_still_ = {};  ///< The longest time by which a beat was late.
  bool ended_there_ = false;
  std::optional<End> end_;
};

}  // namespace mccl::cli::launch
