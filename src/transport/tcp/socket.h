// A Socket owns the descriptor of a TCP socket, and optionally the SecureStream that encrypts its
// bytes.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/open_files.h"
#include "mccl/error.h"
#include "transport/tcp/address.h"
#include "transport/tcp/secure_stream.h"

namespace mccl::transport::tcp {

/// Thrown if the system refuses an operation on a socket. `code` keeps the value of errno, because
/// errno itself may be overwritten before the exception is caught.
class SocketError : public Error {
 public:
  /// The message is `what` and the system's text for `error`.
  SocketError(int error, std::string_view what)
      : Error(std::string(what) + ": " + describe_errno(error)), code(error) {}
  int code;
};

class Socket {
 public:
  Socket() = default;
  /// Takes ownership of the descriptor; a negative one makes an empty Socket.
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&&) noexcept = default;
  /// Replaces secure_ before descriptor_: the destructor of the old stream sends close_notify
  /// through the old descriptor, which must still be open.
  Socket& operator=(Socket&& other) noexcept {
    secure_ = std::move(other.secure_);
    descriptor_ = std::move(other.descriptor_);
    remote_ = other.remote_;
    return *this;
  }
  ~Socket() = default;

  /// Returns a new non-blocking stream socket, closed on exec. Throws SocketError if that fails.
  static Socket stream(int family);

  explicit operator bool() const { return bool(descriptor_); }
  int descriptor() const { return descriptor_.get(); }
  void close() noexcept {
    secure_.reset();
    descriptor_.close();
  }

  /// Encrypts all later bytes with `stream`.
  void encrypt(std::unique_ptr<SecureStream> stream) { secure_ = std::move(stream); }
  /// The encrypted stream; null if bytes are sent unencrypted.
  SecureStream* secure() const { return secure_.get(); }

  /// Addresses of the two ends; an empty Address if the socket has none. remote() returns its last
  /// result if the system no longer has the address, because the connection was reset.
  Address local() const;
  Address remote() const;

  TransferResult send(std::span<const std::byte> bytes) const;
  /// Returns no bytes and no error once the other end has closed the connection.
  TransferResult receive(std::span<std::byte> bytes) const;

  /// Number of encrypted bytes that send() has accepted and the system has not taken yet; 0 without
  /// encryption. flush() sends these bytes; it returns 0 if none are left, else an errno.
  std::size_t pending() const { return secure_ ? secure_->pending() : 0; }
  int flush() const { return secure_ ? secure_->flush() : 0; }
  /// True if receive() may return bytes that poll(2) does not report.
  bool has_input() const { return secure_ && secure_->has_input(); }
  /// Sends the end of the stream: no more bytes follow from this end. Returns false if bytes are
  /// pending; the caller must then call this function again.
  bool end_sending() const noexcept;

  /// Returns and clears the result of a non-blocking connect: 0 or an errno.
  int take_error() const;

  /// Number of bytes written that the other host has not acknowledged, including the pending()
  /// bytes. On Linux, a sent end of stream (FIN) counts as one byte. If the system cannot report
  /// the number, only pending() bytes count.
  std::size_t unacknowledged() const;
  /// Number of those bytes that this host has not sent yet. If the system cannot report the number,
  /// all unacknowledged() bytes count.
  std::size_t unsent() const;

 private:
  mutable Address remote_;
  Descriptor descriptor_;
  std::unique_ptr<SecureStream> secure_;  ///< Uses descriptor_, so it is destroyed first.
};

/// Makes the socket non-blocking and closed on exec, and makes writes raise no SIGPIPE. Throws
/// SocketError if the system refuses.
void make_non_blocking(const Socket& socket);

/// Halves `wanted` until `ask` accepts the size, and returns that size. Returns 0 if `ask` has
/// accepted no size of 4 KiB or more. Needed on macOS, which rejects a buffer above its limit;
/// Linux reduces the size itself.
std::size_t largest_taken(std::size_t wanted, const std::function<bool(std::size_t)>& ask);

/// Sets the sizes of the kernel's send and receive buffers; 0 leaves the sizes to the kernel. Must
/// be called before connect or listen so that the TCP window can grow with the buffers. Returns the
/// smaller of the two granted sizes.
std::size_t set_buffer_bytes(const Socket& socket, std::size_t bytes);

/// Configures a connected socket: no delay for small writes, and keepalive probes that detect
/// within about 11 s that the other host of an idle connection has vanished.
void tune_stream(const Socket& socket);

/// Makes the system reset the connection when the socket is closed, so that the other end gets an
/// error instead of the end of the stream.
void reset_when_closed(const Socket& socket);

/// Makes the system keep an idle connection for `silence` after the other host stops answering
/// keepalive probes. Used where MCCL itself detects dead peers.
void bear_silence(const Socket& socket, std::chrono::seconds silence);

/// Makes the system break the connection when sent bytes stay unacknowledged for `silence`. Only
/// for connections whose reader never pauses: on Linux, bytes also count as unacknowledged while
/// they wait because the peer's receive window is full.
void limit_silence(const Socket& socket, std::chrono::seconds silence = std::chrono::seconds(10));

/// Values of MCCL_CONGESTION_CONTROL that are not the name of an algorithm.
inline constexpr const char* kChosenForLinks = "auto";
inline constexpr const char* kOfTheSystem = "system";

/// Selects the congestion control `name` for a connection. kOfTheSystem keeps the system's default.
/// kChosenForLinks replaces a default of BBR, in any version, by cubic or, if cubic is refused, by
/// reno. BBR almost stops a connection for 200 ms every few seconds, and after idle times, to
/// measure the round-trip time (draft-ietf-ccwg-bbr, ProbeRTT). During such a pause, all ranks of a
/// collective would wait. Returns false if the system lacks `name` or denies it to this process.
bool use_congestion_control(const Socket& socket, const std::string& name);

/// Starts to connect, from `source` if it is not null. Returns 0 if connected immediately,
/// EINPROGRESS, or another errno.
int start_connect(const Socket& socket, const Address& destination, const Address* source);

/// True if poll(2) reports one of the events now.
bool is_ready(const Socket& socket, short events);

/// True if the socket is connected to itself. On loopback, a connect to a free ephemeral port may
/// pick that same port as its source.
bool is_self_connected(const Socket& socket);

/// Backoff of one socket after the system had no memory left for sending: pauses writes for 1 to 16
/// ms before the next try. macOS reports the shortage as ENOBUFS, and still reports the socket as
/// writable, so a sender that polls for writability would spin.
class Shortage {
 public:
  /// Records that the system refused a write. Returns true if this refusal begins a shortage.
  bool refused(Clock::time_point now) {
    const bool is_new = !lasts();
    pause_ = is_new ? kFirstPause : std::min(2 * pause_, kLongestPause);
    until_ = now + pause_;
    return is_new;
  }

  /// Ends the backoff. Called when a write has succeeded or the socket is full. If the socket is
  /// full, poll(2) reports when it is writable again.
  void over() {
    pause_ = {};
    until_ = Clock::time_point::max();
  }

  /// Time at which to retry the write; Clock::time_point::max() if there is no shortage.
  Clock::time_point retry_at() const { return until_; }
  bool lasts() const { return pause_ != Clock::duration::zero(); }

 private:
  static constexpr Clock::duration kFirstPause = std::chrono::milliseconds(1);
  static constexpr Clock::duration kLongestPause = std::chrono::milliseconds(16);

  Clock::duration pause_{};
  Clock::time_point until_ = Clock::time_point::max();
};

}  // namespace mccl::transport::tcp
