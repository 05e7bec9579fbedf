#include "cli/kit/pipe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "mccl/error.h"

namespace mccl::cli {

Pipe make_pipe() {
  std::array<int, 2> ends = {};
  if (::pipe(ends.data()) != 0)
    throw Error(fmt::format("cannot create a pipe: {}; start fewer ranks", std::strerror(errno)));
  for (const int end : ends) ::fcntl(end, F_SETFD, FD_CLOEXEC);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

ssize_t read_some(int descriptor, void* to, std::size_t limit) {
  for (;;) {
    const ssize_t n = ::read(descriptor, to, limit);
    if (n >= 0 || errno != EINTR) return n;
  }
}

}  // namespace mccl::cli
