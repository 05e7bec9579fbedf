// Limits how fast a listener accepts connections, and logs those that it refuses.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "rendezvous/handshake.h"

namespace mccl::rendezvous {

/// Returns the level at which a refusal is logged: WARN for a wrong key or version, which the user
/// must correct; INFO for noise, which any reachable port receives.
LogLevel level_of(Refusal refusal);

/// A token bucket: at most `at_once` connections in a burst, and `per_second` on average.
struct AdmissionRate {
  double at_once = 0;
  double per_second = 0;
};

/// Rate limit and log of one listener. The caller passes the current time. Not thread-safe.
class Turnstile {
 public:
  /// `on_refused` is called for every refused connection; it may be null.
  Turnstile(Log log, std::function<void()> on_refused);

  /// Limits the rate from now on. There is no limit before this call.
  void limit(AdmissionRate rate, Clock::time_point now);

  /// True if the next connection may be accepted. While it is false the listener need not be
  /// polled.
  bool open(Clock::time_point now);
  void admitted();
  /// End of the pause that open() last found; max() if there was none.
  Clock::time_point opens_at() const { return opens_at_; }

  /// Records the result of accept(): an errno, or 0. Each error starts a pause. The first of
  /// consecutive errors is logged, with advice.
  void accept_gave(int error, Clock::time_point now);
  /// Returns the errno once accept() has lacked descriptors for kPatienceWithoutFiles; else 0.
  int lacks_files(Clock::time_point now) const;

  /// Counts a refused connection and logs it. For a minute after that, refusals of the same level
  /// are only counted; the next log line contains their number.
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
  int out_of_room_ = 0;  ///< The errno of the last accept(); 0 when it succeeded.
  Clock::time_point out_of_room_since_;
  Lines quiet_lines_;  ///< Lines at INFO.
  Lines loud_lines_;   ///< Lines at WARN.
};

}  // namespace mccl::rendezvous
