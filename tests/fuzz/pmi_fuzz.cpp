// The answers of MPICH's launcher. Any bytes must end in an address or in an error.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

#include "input.h"
#include "mccl/error.h"
#include "rendezvous/meeting/join.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 0;
  // An answer has at most 4 KiB, so more bytes than the socket takes change nothing.
  (void)!::send(ends[1], data, size, MSG_DONTWAIT);
  ::shutdown(ends[1], SHUT_WR);
  try {
    mccl::rendezvous::exchange_root(ends[0], 1, "", std::chrono::seconds(1));
  } catch (const mccl::Error&) {
  }
  for (const int end : ends) ::close(end);
  return 0;
}
