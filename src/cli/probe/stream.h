// A TCP connection whose reads and writes wait, for a bounded time.
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
  /// Takes over what is connected.
  Stream(Socket socket, std::chrono::milliseconds patience);

  bool write(const void* from, std::size_t bytes);
  /// How many came; 0 at the end, and when none comes in time.
  std::size_t read(void* to, std::size_t most);
  /// Without its end; nothing when no line of at most 200 bytes comes within the patience.
  std::optional<std::string> read_line();
  void end_writing();
  /// Ends both directions, also for a thread that waits in read() or write().
  void shut();
  /// Whether the last read() ended because nothing came in time.
  bool timed_out() const { return timed_out_; }
  const Socket& socket() const { return socket_; }

 private:
  Socket socket_;
  std::chrono::milliseconds patience_;
  bool timed_out_ = false;
};

/// Connects from `source`, where it is not empty. On failure `error` is the errno.
struct Connected {
  std::optional<Stream> stream;
  int error = 0;
  double seconds = 0;
};
Connected connect(const Address& to, const Address* source, std::chrono::milliseconds patience);

}  // namespace mccl::cli::probe
