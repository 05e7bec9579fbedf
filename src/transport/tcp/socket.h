// A TCP socket that closes its descriptor when destroyed.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "base/descriptor.h"
#include "mccl/error.h"
#include "transport/tcp/address.h"

namespace mccl::transport::tcp {

/// The system refused an operation on a socket; `code` is the errno. It is kept here because errno
/// may be overwritten before the exception is caught.
class SocketError : public Error {
 public:
  SocketError(int error, const std::string& message) : Error(message), code(error) {}
  int code;
};

class Socket {
 public:
  Socket() = default;
  /// Takes ownership of the descriptor; a negative one makes an empty Socket.
  explicit Socket(int descriptor) : descriptor_(descriptor) {}

  /// Returns a new non-blocking stream socket that is closed on exec. Throws SocketError.
  static Socket stream(int family);

  explicit operator bool() const { return bool(descriptor_); }
  int descriptor() const { return descriptor_.get(); }
  void close() noexcept { descriptor_.close(); }

  /// Addresses of the two ends; an empty Address if the socket has none.
  Address local() const;
  Address remote() const;

  /// Result of send() and receive(): the bytes moved, and an errno, or 0. would_block() tells
  /// whether a call with that errno must be repeated later.
  struct Moved {
    std::size_t bytes = 0;
    int error = 0;
  };
  Moved send(std::span<const std::byte> bytes) const;
  /// No bytes and no error mean that the other end has closed the connection.
  Moved receive(std::span<std::byte> bytes) const;

  /// Returns and clears the result of a non-blocking connect: 0 or an errno.
  int take_error() const;

  /// Bytes written that the other host has not acknowledged; on Linux, a sent end of stream (FIN)
  /// counts as one byte. 0 if the system cannot report it.
  std::size_t unacknowledged() const;

 private:
  Descriptor descriptor_;
};

/// Returns the system's text for an errno: "Connection refused".
std::string describe_errno(int error);

/// Makes the socket non-blocking, closed on exec and free of SIGPIPE. Throws SocketError.
void make_non_blocking(const Socket& socket);

/// Returns the largest of `wanted`, half of it, a quarter and so on that `ask` accepts; 0 if it
/// accepts none. macOS rejects a buffer above its limit, whereas Linux reduces the size to its
/// limit.
std::size_t largest_taken(std::size_t wanted, const std::function<bool(std::size_t)>& ask);

/// Sets the kernel's send and receive buffers; 0 leaves them to the kernel. Must be called before
/// connect or listen so that the TCP window can grow with them. Returns the smaller of the two
/// granted sizes.
std::size_t set_buffer_bytes(const Socket& socket, std::size_t bytes);

/// Configures a connected socket: no delay for small writes, and keepalive probes that detect
/// within about 11 s that the other host of an idle connection has vanished.
void tune_stream(const Socket& socket);

/// Makes the system keep an idle connection until the other host has been silent for `silence`.
/// Used for connections whose peers are monitored by other means.
void bear_silence(const Socket& socket, std::chrono::seconds silence);

/// Makes the system break the connection when sent bytes stay unacknowledged for `silence`. Only
/// for connections whose reader never pauses: Linux also counts a live reader with a full window as
/// silent.
void limit_silence(const Socket& socket, std::chrono::seconds silence = std::chrono::seconds(10));

/// Values of the setting that name no congestion control.
inline constexpr const char* kChosenForLinks = "auto";
inline constexpr const char* kOfTheSystem = "system";

/// Selects the congestion control `name` for a connection. kOfTheSystem keeps the system's default.
/// kChosenForLinks keeps it too, except that it replaces every version of BBR by cubic, or by reno,
/// if the system allows one of them. BBR almost stops a connection for 200 ms every few seconds,
/// and after idle times, to measure the round-trip time (draft-ietf-ccwg-bbr, ProbeRTT). During
/// such a pause, all ranks of a collective would wait. Returns false if the system does not have
/// `name` or does not allow this process to use it.
bool use_congestion_control(const Socket& socket, const std::string& name);

/// Starts to connect, from `source` if it is not null. Returns 0 if connected immediately,
/// EINPROGRESS, or another errno.
int start_connect(const Socket& socket, const Address& destination, const Address* source);

/// True if the socket is connected to itself. On loopback, a connect to a free ephemeral port may
/// pick that same port as its source.
bool is_self_connected(const Socket& socket);

}  // namespace mccl::transport::tcp
