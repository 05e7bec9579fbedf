// A TCP socket that closes itself.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "base/descriptor.h"
#include "mccl/error.h"
#include "transport/tcp/address.h"

namespace mccl::transport::tcp {

/// The system refused what was asked of a socket; `code` is the errno. By the time that it is
/// caught, errno itself may be another call's.
class SocketError : public Error {
 public:
  SocketError(int error, const std::string& message) : Error(message), code(error) {}
  int code;
};

class Socket {
 public:
  Socket() = default;
  /// Takes the descriptor over; a negative one makes an empty Socket.
  explicit Socket(int descriptor) : descriptor_(descriptor) {}

  /// A new non-blocking stream socket that a child's exec does not inherit. Throws SocketError.
  static Socket stream(int family);

  explicit operator bool() const { return bool(descriptor_); }
  int descriptor() const { return descriptor_.get(); }
  void close() noexcept { descriptor_.close(); }

  /// Addresses of both ends; an empty Address when the socket has none.
  Address local() const;
  Address remote() const;

  /// What a non-blocking connect ended with: 0 or an errno.
  int take_error() const;

  /// Bytes written that the other host has not acknowledged; on Linux the end of the stream counts
  /// as one. 0 where the system cannot tell.
  std::size_t unacknowledged() const;

 private:
  Descriptor descriptor_;
};

/// "Connection refused".
std::string describe_errno(int error);

/// Non-blocking, closed on exec, no SIGPIPE. Throws SocketError.
void make_non_blocking(const Socket& socket);

/// The largest size that `ask` takes of `wanted`, half of it, half of that and so on; 0 when it
/// takes none. macOS refuses a buffer above its limit where Linux grants what it may.
std::size_t largest_taken(std::size_t wanted, const std::function<bool(std::size_t)>& ask);

/// Buffers of the kernel, to be set before connect or listen so that the window can grow with them;
/// 0 leaves them to the kernel. Returns what the kernel granted of the smaller of the two.
std::size_t set_buffer_bytes(const Socket& socket, std::size_t bytes);

/// For a connected socket: no delay for small writes, and probes that notice within about 11 s when
/// the other host of an idle connection has vanished.
void tune_stream(const Socket& socket);

/// The system shall not give an idle connection up before the other host has been silent for so
/// long: for connections whose peers are watched by other means.
void bear_silence(const Socket& socket, std::chrono::seconds silence);

/// Break the connection when sent bytes stay unacknowledged for so long. Only for connections whose
/// reader never pauses: Linux counts a reader that lets its window fill up as silent, however alive
/// it is.
void limit_silence(const Socket& socket, std::chrono::seconds silence = std::chrono::seconds(10));

/// Starts to connect, from `source` if it is not null: 0 when connected at once, EINPROGRESS, or
/// another errno.
int start_connect(const Socket& socket, const Address& destination, const Address* source);

/// A socket connected to itself: on loopback a connect to a free ephemeral port may pick that very
/// port as its own.
bool is_self_connected(const Socket& socket);

}  // namespace mccl::transport::tcp
