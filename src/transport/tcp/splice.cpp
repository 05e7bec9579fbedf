#include "transport/tcp/splice.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/no_signal.h"
#include "base/would_block.h"

namespace mccl::transport::tcp {
namespace {

/// Maximum number of rounds of receive and send, for each direction in one call of advance(),
/// because the caller must also serve other connections.
constexpr int kMostMoves = 8;
/// Interval between checks whether the last bytes have been acknowledged.
constexpr std::chrono::milliseconds kAcknowledgementNap{10};

}  // namespace

Splice::Splice(Socket one, Socket other, Clock::duration patience)
    : one_(std::move(one)), other_(std::move(other)), patience_(patience) {}

bool Splice::advance(Clock::time_point now) {
  move(one_, other_, forth_, back_);
  move(other_, one_, back_, forth_);
  if (is_over()) return false;
  if (!is_broken() && !an_end_has_gone()) return true;
  if (!gone_since_) gone_since_ = now;
  if (is_broken()) {
    if (now - *gone_since_ < std::min(patience_, kForLastBytes)) return true;
    for (const Socket* socket : {&one_, &other_}) reset_when_closed(*socket);
    return false;
  }
  gave_up_ = now - *gone_since_ >= patience_;
  return !gave_up_;
}

bool Splice::is_over() const {
  if (is_broken()) return false;
  if (forth_.ended && back_.ended) return true;
  return awaits_acknowledgement() && (forth_.ended ? other_ : one_).unacknowledged() == 0;
}

/// Moves bytes from `from` to `to`, and passes on an orderly end of the stream.
void Splice::move(const Socket& from, const Socket& to, Way& way, const Way& opposite) {
  bool more = true;
  for (int i = 0; more && i < kMostMoves; ++i) {
    more = false;
    take(from, way, more);
    give(to, way, more);
  }
  if (way.no_more && !way.has() && !way.ended && !breaks(way, opposite)) {
    way.ended = true;
    (void)::shutdown(to.descriptor(), SHUT_WR);
  }
}

void Splice::take(const Socket& from, Way& way, bool& more) {
  if (!way.wants()) return;
  if (way.held == nullptr) way.held = std::make_unique_for_overwrite<std::byte[]>(kHeldBytes);
  if (way.begin >= kHeldBytes / 2) {
    std::memmove(way.held.get(), way.held.get() + way.begin, way.end - way.begin);
    way.end -= way.begin;
    way.begin = 0;
  }
  const ssize_t got = ::recv(from.descriptor(), way.held.get() + way.end, kHeldBytes - way.end, 0);
  if (got > 0) {
    way.end += static_cast<std::size_t>(got);
    more = true;
  } else if (got == 0) {
    way.no_more = true;
  } else if (errno == EINTR) {
    more = true;
  } else if (!would_block(errno)) {
    way.no_more = way.is_source_broken = true;
  }
}

void Splice::give(const Socket& to, Way& way, bool& more) {
  if (way.discards) way.begin = way.end = 0;
  if (!way.has()) return;
  if (way.shortage.lasts() && Clock::now() < way.shortage.retry_at()) return;
  const ssize_t sent =
      ::send(to.descriptor(), way.held.get() + way.begin, way.end - way.begin, kNoSignal);
  if (sent < 0 && errno == ENOBUFS) {
    way.shortage.refused(Clock::now());
    return;
  }
  way.shortage.over();
  if (sent < 0) {
    if (would_block(errno) || errno == EINTR) return;
    // The system reports an error once, and afterwards an end of the stream, which must not count
    // as an orderly end. EPIPE means that the sink had ended its own stream before.
    way.is_sink_broken = errno != EPIPE;
    way.discards = more = true;
    return;
  }
  way.begin += static_cast<std::size_t>(sent);
  if (way.begin == way.end) way.begin = way.end = 0;
  more = more || sent > 0;
}

void Splice::watch(std::vector<pollfd>& descriptors) const {
  const auto add = [&](const Socket& socket, const Way& from_it, const Way& to_it) {
    int events = 0;
    if (from_it.wants()) events |= POLLIN;
    if (to_it.has() && !to_it.shortage.lasts()) events |= POLLOUT;
    // If no events are wanted, the descriptor must be -1: poll(2) always reports a closed
    // connection, which would end every sleep.
    descriptors.push_back({events != 0 ? socket.descriptor() : -1, static_cast<short>(events), 0});
  };
  add(one_, forth_, back_);
  add(other_, back_, forth_);
}

Clock::time_point Splice::retry_at() const {
  Clock::time_point retry = std::min(forth_.shortage.retry_at(), back_.shortage.retry_at());
  const Clock::duration patience = is_broken() ? std::min(patience_, kForLastBytes) : patience_;
  if (gone_since_ && patience != Clock::duration::max())
    retry = std::min(retry, *gone_since_ + patience);
  // poll does not report acknowledgements, so they are checked periodically.
  return awaits_acknowledgement() ? std::min(retry, Clock::now() + kAcknowledgementNap) : retry;
}

}  // namespace mccl::transport::tcp
