#include "transport/tcp/link.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/no_signal.h"

namespace mccl::transport::tcp {

namespace {

constexpr std::size_t kBufferBytes = std::size_t{256} << 10;
/// A peek() of at most kSmallRequest bytes usually asks for a header. Such a call receives at most
/// kSmallReceive bytes into the buffer, so that read() can receive most of the following bytes
/// directly into their destination.
constexpr std::size_t kSmallRequest = 4 << 10;
constexpr std::size_t kSmallReceive = 16 << 10;
/// Time for which TCP must have nothing to send before a link whose bytes the kernel encrypts may
/// be closed. The kernel gives TCP the records that it holds within a tick of its clock.
constexpr Clock::duration kKernelHolds = std::chrono::milliseconds(50);
/// Maximum number of receives per depart() call, because the caller must also serve other links.
constexpr int kMostDiscards = 64;
/// Maximum number of bytes that one system call sends or receives; macOS rejects more than 2 GiB.
constexpr std::size_t kMaxCallBytes = std::size_t{1} << 30;

/// True if `error` means that the system call must be repeated once poll(2) reports the socket
/// ready. ENOBUFS (no memory for sending) is excluded, because run_short() handles it.
bool is_for_later(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

iovec piece(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), std::min(bytes.size(), kMaxCallBytes)};
}

/// True if the connection broke although the peer did not close it.
bool is_cut(int error) { return error != ECONNRESET && error != EPIPE; }

}  // namespace

std::string TcpLink::describe_connection() const {
  const SecureStream* const secure = socket_.secure();
  return fmt::format("{}{}tcp {} -> {}{}{}", secure && secure->is_in_kernel() ? "kernel-" : "",
                     secure ? "encrypted " : "", socket_.local().text(), socket_.remote().text(),
                     options_.peer_host.empty() ? "" : ", host ", options_.peer_host);
}

std::string TcpLink::explain(int error) {
  switch (error) {
    case ECONNRESET:
      return "the peer reset the connection (its process died or closed it with bytes unread)";
    case ECONNABORTED:
      return "the system of this host aborted the connection";
    case EPIPE:
      return "the peer has closed the connection";
    case ETIMEDOUT:
      return "the peer's host no longer answers";
    case EBADMSG:
      return "an encrypted record is not valid, or was altered in transit";
    default:
      return describe_errno(error);
  }
}

TcpLink::TcpLink(Socket socket, std::string peer, TcpLinkOptions options)
    : socket_(std::move(socket)), peer_(std::move(peer)), options_(std::move(options)) {
  description_ = describe_connection();
}

TcpLink::~TcpLink() {
  if (options_.repairer) options_.repairer->forget(*this);
}

/// After the connection has ended, returns -1 until the end is reported: with the descriptor of an
/// ended connection, poll(2) would return immediately each time.
int TcpLink::descriptor() const {
  const bool ended = !ended_.empty() || !writing_ended_.empty();
  return ended && Clock::now() < report_end_at_ ? -1 : socket_.descriptor();
}

void TcpLink::end(std::string why) {
  if (writing_ended_.empty()) report_end_at_ = Clock::now() + options_.report_end_after;
  ended_ = std::move(why);
  if (options_.repairer) std::exchange(options_.repairer, nullptr)->forget(*this);
}

bool TcpLink::has_ended() { return !ended_.empty() && Clock::now() >= report_end_at_; }

void TcpLink::fail(const std::string& what) const {
  throw LinkClosed(fmt::format("lost the connection to {}: {} ({})", peer_, what, description_),
                   !cut_);
}

TransferResult TcpLink::send(std::span<const std::byte> first,
                             std::span<const std::byte> second) const {
  if (SecureStream* const secure = socket_.secure()) return secure->send(first, second);
  if (first.empty()) return {};
  iovec pieces[2] = {piece(first), piece(second)};
  msghdr message = {};
  message.msg_iov = pieces;
  // Sends only the first span if both spans together exceed kMaxCallBytes: piece() may have
  // shortened the first span, whose remaining bytes must precede the second span.
  message.msg_iovlen = second.empty() || pieces[0].iov_len + second.size() > kMaxCallBytes ? 1 : 2;
  const ssize_t sent = options_.send(socket_.descriptor(), &message, kNoSignal);
  return sent >= 0 ? TransferResult{static_cast<std::size_t>(sent), 0} : TransferResult{0, errno};
}

std::size_t TcpLink::write(std::span<const std::byte> first, std::span<const std::byte> second) {
  if (first.empty()) std::swap(first, second);
  if (shortage_.lasts() && Clock::now() < shortage_.retry_at()) return 0;
  if (is_paused_ || !send_again()) return 0;
  if (!socket_ || !writing_ended_.empty()) {
    if (Clock::now() >= report_end_at_) fail(ended_.empty() ? writing_ended_ : ended_);
    return 0;
  }
  for (;;) {
    const auto [sent, error] = send(first, second);
    if (error == 0 || is_for_later(error)) {
      if (!first.empty()) shortage_.over();
      if (options_.repairer && sent > 0) {
        retained_.append(first, second, sent);
        again_from_ = retained_.end();
      }
      return sent;
    }
    if (error == EINTR) continue;
    failed_to_write(error);
    return 0;
  }
}

/// Handles an error of a system call for sending. Throws LinkClosed if the connection has ended and
/// the end may be reported.
void TcpLink::failed_to_write(int error) {
  if (error == ENOBUFS) return run_short();
  if (breaks(error)) return;
  if (writing_ended_.empty()) {
    cut_ = is_cut(error);
    writing_ended_ = explain(error);
    if (ended_.empty()) report_end_at_ = Clock::now() + options_.report_end_after;
  }
  if (Clock::now() >= report_end_at_) fail(ended_.empty() ? writing_ended_ : ended_);
}

void TcpLink::run_short() {
  const bool is_new = shortage_.refused(Clock::now());
  if (!is_new || !options_.warn) return;
  options_.warn(fmt::format(
      "the system has no memory left for data to {} ({}); MCCL waits a moment and retries, which "
      "makes transfers slower. On macOS, kern.ipc.maxsockbuf and MCCL_SOCKET_BUFFER_BYTES limit "
      "the memory of a connection: smaller values, or fewer connections, leave more for each",
      peer_, description_));
  options_.warn = nullptr;  // Warns only once per connection.
}

std::size_t TcpLink::receive(std::byte* to, std::size_t limit) {
  if (taken_from_ < taken_.size()) {
    const std::size_t count = std::min(limit, taken_.size() - taken_from_);
    std::memcpy(to, taken_.data() + taken_from_, count);
    taken_from_ += count;
    if (taken_from_ == taken_.size()) {
      taken_ = {};
      taken_from_ = 0;
    }
    return count;
  }
  if (!ended_.empty() || limit == 0 || !socket_) return 0;
  for (;;) {
    const auto [got, error] = socket_.receive({to, std::min(limit, kMaxCallBytes)});
    received_ += got;
    if (got > 0) return got;
    if (is_paused_ && !is_for_later(error) && error != EINTR) {
      socket_.close();  // The peer has replaced this connection.
      return 0;
    }
    if (error == 0) {
      end(writing_ended_.empty() ? "the peer closed the connection" : writing_ended_);
      return 0;
    }
    if (is_for_later(error)) return 0;
    if (error == EINTR) continue;
    if (breaks(error)) return 0;
    cut_ = is_cut(error);
    end(explain(error));
    return 0;
  }
}

/// A socket that is closed with unread bytes, or that receives bytes after close, resets the
/// connection. The system then discards bytes that the peer's host has not acknowledged. So the
/// socket stays open until the peer has closed its end too, or its host has acknowledged
/// everything.
bool TcpLink::depart() noexcept {
  std::array<std::byte, kSmallReceive> discarded;
  try {
    if (!is_paused_ && !has_ended_sending_ && socket_ && send_again())
      has_ended_sending_ = socket_.end_sending();
    for (int i = 0; i < kMostDiscards && receive(discarded.data(), discarded.size()) > 0; ++i) {
    }
    if (!ended_.empty()) return true;
    const bool is_all_sent = unsent() == 0;
    if (!is_all_sent) all_sent_since_ = Clock::time_point::max();
    if (!is_all_sent || !socket_.secure() || !socket_.secure()->is_in_kernel()) return is_all_sent;
    // The kernel may hold records that it gives to TCP a moment later.
    all_sent_since_ = std::min(all_sent_since_, Clock::now());
    return Clock::now() - all_sent_since_ >= kKernelHolds;
  } catch (const std::exception&) {
    return false;  // There is no memory for the error text. The next call detects the end again.
  }
}

void TcpLink::make_room(std::size_t bytes) {
  if (buffer_ == nullptr) buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBufferBytes);
  if (begin_ == end_) begin_ = end_ = 0;
  if (begin_ + bytes <= kBufferBytes) return;
  std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
}

std::span<const std::byte> TcpLink::peek(std::size_t at_least) {
  if (at_least > kBufferBytes) {
    throw InvalidArgument(fmt::format("cannot peek at {} bytes: the buffer holds at most {} ({})",
                                      at_least, kBufferBytes, description_));
  }
  at_least = std::max<std::size_t>(at_least, 1);
  if (buffered() < at_least) {
    const std::size_t goal = at_least <= kSmallRequest ? kSmallReceive : kBufferBytes;
    make_room(goal);
    end_ += receive(buffer_.get() + end_, goal - buffered());
    if (buffered() < at_least) {
      if (has_ended()) fail(ended_);
      return {};
    }
  }
  return {buffer_.get() + begin_, buffered()};
}

void TcpLink::consume(std::size_t n) {
  if (n > buffered()) {
    throw InvalidArgument(fmt::format("cannot consume {} bytes: only {} are available ({})", n,
                                      buffered(), description_));
  }
  begin_ += n;
}

std::size_t TcpLink::unsent() const {
  if (is_paused_) return retained_.end() - retained_.begin();
  // A relay may still hold the bytes that its host has acknowledged.
  if (has_ended_sending_ && options_.is_relayed && options_.repairer)
    return retained_.end() - peer_has_;
  return to_send_again() + (socket_ ? socket_.unacknowledged() : 0);
}

/// The result may be too long, because the time since the last acknowledgement includes idle time
/// before the retransmission. The caller therefore also measures for how long this function has
/// returned a value.
std::optional<Clock::duration> TcpLink::unacknowledged_for() const {
  if (stalled_since_ && (is_paused_ || retained_.end() - unsent() <= stalled_at_))
    return Clock::now() - *stalled_since_;
#ifdef __linux__
  tcp_info info = {};
  socklen_t length = sizeof info;
  if (::getsockopt(socket_.descriptor(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  // While the peer's receive window is full, Linux sends probes, which must not count as
  // retransmissions.
  if (info.tcpi_unacked == 0 || info.tcpi_retransmits == 0) return {};
  return std::chrono::milliseconds(info.tcpi_last_ack_recv);
#else
  return {};
#endif
}

void TcpLink::lose_peer(Loss loss) {
  if (loss == Loss::left) return;
  options_.report_end_after = {};
  report_end_at_ = {};
  if (options_.repairer) stop_repairs();
  // The peer's system closes the connection, so no shutdown is needed: recv() returns the bytes
  // that have arrived and then reports the end.
  if (loss == Loss::reported) return;
  // Bytes that the kernel has received stay readable. shutdown() may fail if the connection has
  // already ended.
  (void)::shutdown(socket_.descriptor(), SHUT_RDWR);
}

std::size_t TcpLink::peek_capacity() const { return kBufferBytes; }

std::size_t TcpLink::buffer_bytes() const {
  return kBufferBytes + retained_.buffer_bytes() + taken_.capacity() +
         (socket_.secure() ? socket_.secure()->buffer_bytes() : 0);
}

std::size_t TcpLink::read(std::span<std::byte> destination) {
  if (destination.empty()) return 0;
  const std::size_t ready = std::min(buffered(), destination.size());
  if (ready > 0) {
    std::memcpy(destination.data(), buffer_.get() + begin_, ready);
    begin_ += ready;
  }
  const std::size_t got = ready + receive(destination.data() + ready, destination.size() - ready);
  if (got == 0 && has_ended()) fail(ended_);
  return got;
}

}  // namespace mccl::transport::tcp
