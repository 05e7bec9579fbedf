// Two connections joined into one: what comes from either goes to the other, in the order and at
// the pace at which it is taken. For a rank that relays between two that no cable joins; it holds
// at most kHeldBytes each way, so that one who does not read holds up only who writes to it.
#pragma once

#include <poll.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "transport/tcp/shortage.h"
#include "transport/tcp/socket.h"

namespace mccl::transport::tcp {

/// Not thread-safe. No call blocks.
class Splice {
 public:
  static constexpr std::size_t kHeldBytes = std::size_t{256} << 10;

  /// Takes two connected, non-blocking sockets.
  Splice(Socket one, Socket other);

  /// Moves what can be moved now. False once both ways have ended, or either has broken: then both
  /// are to be closed. Where one end takes no more, this is after the other end's host has what
  /// that end wrote.
  bool advance();
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
  /// Only one way is left, and nobody reads what it carries.
  bool awaits_acknowledgement() const {
    return (forth_.ended && back_.discards) || (back_.ended && forth_.discards);
  }

  Socket one_;
  Socket other_;
  Way forth_;  ///< From one to the other.
  Way back_;
};

}  // namespace mccl::transport::tcp
