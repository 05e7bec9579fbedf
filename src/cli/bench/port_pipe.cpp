#include "cli/bench/port_pipe.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "mccl/error.h"

namespace mccl::cli::bench {

void PortPipe::close() noexcept {
  pipe_.reader.close();
  pipe_.writer.close();
}

void PortPipe::announce(std::uint16_t port) {
  // Reads and writes of so few bytes are atomic, so each rank gets one whole port.
  for (int rank = 1; rank < ranks_; ++rank) {
    if (::write(pipe_.writer.get(), &port, sizeof port) != sizeof port)
      throw Error(
          fmt::format("rank 0 cannot send its port to the other ranks: {}", std::strerror(errno)));
  }
  close();
}

std::uint16_t PortPipe::learn() {
  pipe_.writer.close();
  std::uint16_t port = 0;
  const ssize_t n = read_some(pipe_.reader.get(), &port, sizeof port);
  close();
  if (n != sizeof port) throw PeerError("rank 0 ended before the ranks were connected");
  return port;
}

}  // namespace mccl::cli::bench
