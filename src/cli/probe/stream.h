// A TCP connection whose reads and writes block for a bounded time.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "transport/tcp/socket.h"

namespace mccl::cli::probe {

using transport::tcp::Address;
using transport::tcp::Socket;

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
  const Socket& socket() const { return socket_; }

 private:
  Socket socket_;
  std::chrono::milliseconds patience_;
  bool timed_out_ = false;
};

/// Result of connect(), which uses `source` as its own address unless that is null. On failure,
/// `error` is the errno.
struct Connected {
  std::optional<Stream> stream;
  int error = 0;
  double seconds = 0;
};
Connected connect(const Address& to, const Address* source, std::chrono::milliseconds patience);

}  // namespace mccl::cli::probe
