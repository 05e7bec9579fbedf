// What a listener does about strangers: how fast they come in, and what is said of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "rendezvous/handshake.h"

namespace mccl::rendezvous {

/// How loudly a refusal is logged: WARN for a wrong key or version, which somebody must mend; INFO
/// for noise, which comes with being reachable.
LogLevel level_of(Refusal refusal);

/// So many at once after a pause, and so many a second for ever.
struct AdmissionRate {
  double at_once = 0;
  double per_second = 0;
};

/// Asks nobody for the time. Not thread-safe.
class Turnstile {
 public:
  /// `on_refused` is called for every stranger; it may be null.
  Turnstile(Log log, std::function<void()> on_refused);

  /// From now on. Without it everybody comes in at once.
  void limit(AdmissionRate rate, Clock::time_point now);

  /// Whether the next one may come in. While it may not, nobody need look who waits.
  bool open(Clock::time_point now);
  void admitted();
  /// The end of the pause that open() found; max() without one.
  Clock::time_point opens_at() const { return opens_at_; }

  /// accept() gave `error` (an errno), or none. The first of a row is logged, with what to do, and
  /// each is followed by a pause.
  void accept_gave(int error, Clock::time_point now);
  /// The errno, once accept() has lacked descriptors for kPatienceWithoutFiles; else 0.
  int lacks_files(Clock::time_point now) const;

  /// Who had to go is counted, and the first one logged; those of the minute after that are
  /// mentioned with the next one.
  void turned_away(LogLevel level, const std::string& from, const std::string& why,
                   Clock::time_point now);

 private:
  struct Lines {
    std::optional<Clock::time_point> last;
    std::uint64_t unsaid = 0;
  };

  void refill(Clock::time_point now);

  Log log_;
  std::function<void()> on_refused_;
  std::optional<AdmissionRate> rate_;
  double tokens_ = 0;
  Clock::time_point filled_at_;
  Clock::time_point opens_at_ = Clock::time_point::max();
  Clock::time_point pause_ends_ = Clock::time_point::min();
  int out_of_room_ = 0;  ///< Why, as an errno; 0 while there is room.
  Clock::time_point out_of_room_since_;
  Lines quiet_lines_;  ///< At INFO.
  Lines loud_lines_;   ///< At WARN.
};

}  // namespace mccl::rendezvous
