// Two connections joined into one: what comes from either goes to the other, in the order and at
// the pace at which it is taken. A rank that relays between two that no cable joins has one for
// each connection of theirs. It holds at most kHeldBytes each way, so an end that does not read
// holds up only the end that writes to it.
#pragma once

#include <poll.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "transport/tcp/shortage.h"
#include "transport/tcp/socket.h"

namespace mccl::transport::tcp {

/// Not thread-safe. No call blocks.
class Splice {
 public:
  static constexpr std::size_t kHeldBytes = std::size_t{256} << 10;

  /// Takes two connected, non-blocking sockets. Where one end has gone, the other end has
  /// `patience` to take what that one wrote.
  Splice(Socket one, Socket other, Clock::duration patience = Clock::duration::max());

  /// Moves what can be moved now. False once both ways have ended, either has broken, or the
  /// patience is over: then both are to be closed. Where one end has gone, this is after the other
  /// end's host has what that one wrote.
  bool advance(Clock::time_point now = Clock::now());
  /// The patience was over, and bytes may be lost.
  bool gave_up() const { return gave_up_; }
  void watch(std::vector<pollfd>& descriptors) const;
  /// When to advance whatever poll says; the end of time for most.
  Clock::time_point retry_at() const;

  /// Its two connections.
  const Socket& one() const { return one_; }
  const Socket& other() const { return other_; }

 private:
  /// Bytes on their way are held[begin, end).
  struct Way {
    std::unique_ptr<std::byte[]> held;
    std::size_t begin = 0;
    std::size_t end = 0;
    bool no_more = false;   ///< The source has ended.
    bool ended = false;     ///< And the sink knows.
    bool discards = false;  ///< The sink takes no more; what it wrote may still be on its way.
    Shortage shortage;      ///< Of memory for what is sent to the sink.

    bool wants() const { return !no_more && (end < kHeldBytes || begin >= kHeldBytes / 2); }
    bool has() const { return begin < end; }
  };

  static bool move(const Socket& from, const Socket& to, Way& way);
  static bool take(const Socket& from, Way& way, bool& more);
  static void give(const Socket& to, Way& way, bool& more);
  bool is_over() const;
  /// One end takes no more, so its process has closed it. What it wrote may be on its way still.
  bool an_end_has_gone() const { return forth_.discards || back_.discards; }
  /// An end has gone, and the other end's system has all that it wrote, but may not have sent it.
  bool awaits_acknowledgement() const {
    return (forth_.ended && back_.discards) || (back_.ended && forth_.discards);
  }

  Socket one_;
  Socket other_;
  Clock::duration patience_;
  std::optional<Clock::time_point> gone_since_;  ///< Since when an end has gone.
  bool gave_up_ = false;
  Way forth_;  ///< From one to the other.
  Way back_;
};

}  // namespace mccl::transport::tcp
