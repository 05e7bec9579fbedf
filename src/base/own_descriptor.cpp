#include "base/own_descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace mccl {

int own_descriptor(int descriptor) noexcept {
  if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
  const int copy = ::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  ::close(descriptor);
  if (copy < 0) errno = EMFILE;
  return copy;
}

}  // namespace mccl
