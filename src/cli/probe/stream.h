// TCP connections between probes.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "cli/probe/secret.h"
#include "transport/tcp/socket.h"

namespace mccl::cli::probe {

using transport::tcp::Address;
using transport::tcp::Socket;

/// A connection whose reads and writes block for a bounded time.
class Stream {
 public:
  /// Takes ownership of a connected socket.
  Stream(Socket socket, std::chrono::milliseconds patience);

  bool write(const void* from, std::size_t bytes);
  /// Returns the number of bytes read. Returns 0 at the end of the stream, on errors and after the
  /// timeout.
  std::size_t read(void* to, std::size_t most);
  /// Returns a line without its line end. Returns nothing if no line of at most 200 bytes arrives
  /// within the patience.
  std::optional<std::string> read_line();
  void end_writing();
  /// Ends both directions. Also wakes a thread that blocks in read() or write().
  void shut();
  /// True if the last read() timed out.
  bool timed_out() const { return timed_out_; }

 private:
  Socket socket_;
  std::chrono::milliseconds patience_;
  bool timed_out_ = false;
};

/// Purposes of a connection.
inline constexpr const char* kHello = "hello";  ///< Only proofs are exchanged.
inline constexpr const char* kEcho = "echo";    ///< Each byte is sent back.
inline constexpr const char* kCount = "count";  ///< Discards all bytes and returns their number.

/// The first word that a probe sends on a new connection.
inline constexpr const char* kGreeting = "mccl ";

/// Connects, and makes the other side prove that it knows the key. Returns the reason why that
/// failed, such as "Connection refused"; empty if it succeeded.
std::string dial(const Secret& secret, const Address& to, const Address* source);

/// Results of time_link(); 0 if unknown.
struct Timed {
  double latency_s = 0;  ///< Latency in one direction: half the median round trip of one byte.
  double bytes_per_s = 0;
};

/// Measures latency and rate. Sends data for about `seconds`, or less if the link is fast.
Timed time_link(const Secret& secret, const Address& to, const Address* source, double seconds);

}  // namespace mccl::cli::probe
