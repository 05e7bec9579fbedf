// The part of TcpLink that continues a link over a new connection.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "transport/tcp/link.h"

namespace mccl::transport::tcp {
namespace {

constexpr std::size_t kTakenAtOnce = std::size_t{64} << 10;
/// Maximum number of bytes that close_connection() takes. It is larger than the system's buffers;
/// only a peer that keeps sending exceeds it.
constexpr std::size_t kMostTaken = std::size_t{64} << 20;
/// Maximum number of bytes that a relayed link keeps. It is larger than what relays and their
/// systems hold; only a peer that does not report what it has received exceeds it. A link that
/// has kept less than it would need ends if its connection breaks.
constexpr StreamOffset kMostUnreported = StreamOffset{64} << 20;
/// Number of bytes that an encrypted link keeps although they count as acknowledged: a record of
/// which only a part has arrived, which the peer cannot read, and two that the kernel may hold if
/// it encrypts.
constexpr std::size_t kBytesInRecords = 3 * kRecordPayloadBytes;

/// True if the system has closed the connection with this error, although the peer's process may be
/// alive.
bool may_be_repaired(int error) {
  switch (error) {
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
      return true;
    default:
      return false;
  }
}

}  // namespace

StreamOffset TcpLink::needed() const {
  if (is_paused_) return retained_.end();
  if (options_.is_relayed) return retained_.end() - peer_has_;
  const std::size_t bytes = options_.is_inside_host ? socket_.unsent() : socket_.unacknowledged();
  return to_send_again() + bytes + (socket_.secure() ? kBytesInRecords : 0);
}

void TcpLink::release() noexcept {
  if (!options_.repairer) return;
  if (options_.is_relayed && retained_.end() - peer_has_ > kMostUnreported) return retained_.drop();
  retained_.release([this] { return needed(); });
}

void TcpLink::received_by_peer(StreamOffset bytes) {
  if (bytes > retained_.end()) {
    throw CorruptionError(
        fmt::format("{} reports {} received bytes over the connection {}, but this rank has "
                    "written only {}",
                    peer_, bytes, description_, retained_.end()));
  }
  peer_has_ = std::max(peer_has_, bytes);
}

void TcpLink::suspect() noexcept {
  if (!options_.repairer || is_paused_ || !ended_.empty()) return;
  if (stalled_since_ && retained_.end() - unsent() <= stalled_at_) return;
  stalled_since_ = Clock::now() - unacknowledged_for().value_or(Clock::duration());
  stalled_at_ = retained_.end() - unsent();
  options_.repairer->suspect(*this);
}

bool TcpLink::breaks(int error) {
  if (!options_.repairer || !may_be_repaired(error)) return false;
  if (socket_.secure() && socket_.secure()->is_cut_short()) return false;
  if (!is_paused_ && !options_.repairer->begin(*this, explain(error))) return false;
  is_paused_ = true;
  try {
    (void)close_connection();
    return true;
  } catch (const std::bad_alloc&) {
    stop_repairs();
    return false;
  }
}

StreamOffset TcpLink::close_connection() {
  while (socket_) {
    const std::size_t before = taken_.size();
    taken_.resize(before + kTakenAtOnce);
    const auto [got, error] = socket_.receive(std::span(taken_).subspan(before));
    taken_.resize(before + got);
    received_ += got;
    if ((got == 0 && error != EINTR) || taken_.size() >= kMostTaken) socket_.close();
  }
  return received_;
}

StreamOffset TcpLink::resume(Socket socket, StreamOffset peer_has) {
  if (peer_has < retained_.begin() || peer_has > retained_.end()) {
    throw CorruptionError(fmt::format(
        "the connection broke in the middle of a message: {} has received {} bytes, but "
        "this rank has kept only bytes {} to {} to send again",
        peer_, peer_has, retained_.begin(), retained_.end()));
  }
  socket_ = std::move(socket);
  description_ = describe_connection();
  again_from_ = peer_has;
  peer_has_ = std::max(peer_has_, peer_has);
  is_paused_ = has_ended_sending_ = false;
  shortage_.over();
  const StreamOffset missing = to_send_again();
  (void)send_again();
  return missing;
}

bool TcpLink::send_again() {
  if (again_from_ < retained_.begin()) {
    give_up("this rank had no memory left to keep bytes until the peer has received them", false);
    return false;
  }
  while (again_from_ < retained_.end()) {
    const auto [sent, error] = send(retained_.from(again_from_), {});
    again_from_ += sent;
    if (sent > 0 || error == EINTR) continue;
    if (error != EAGAIN && error != EWOULDBLOCK) failed_to_write(error);
    return false;
  }
  return true;
}

void TcpLink::give_up(std::string why, bool has_died) {
  stop_repairs();
  try {
    (void)close_connection();
  } catch (const std::bad_alloc&) {
    socket_.close();
  }
  cut_ = !has_died;
  end(why);
  writing_ended_ = std::move(why);
}

void TcpLink::stop_repairs() {
  std::exchange(options_.repairer, nullptr)->forget(*this);
  const bool has_gap = again_from_ < retained_.end();
  again_from_ = retained_.end();
  is_paused_ = false;
  if (!socket_ && ended_.empty()) end("the connection broke, and was not replaced");
  if (!socket_ || has_gap) writing_ended_ = ended_.empty() ? "the peer is lost" : ended_;
}

}  // namespace mccl::transport::tcp
