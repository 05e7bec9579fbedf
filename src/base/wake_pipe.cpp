#include "base/wake_pipe.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/no_signal.h"
#include "base/open_files.h"
#include "mccl/error.h"

namespace mccl {

namespace {

[[noreturn]] void refuse(int error) {
  throw Error("cannot create a pair of sockets: " + describe_errno(error));
}

}  // namespace

WakePipe::WakePipe() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) refuse(errno);
  read_end_ = Descriptor(ends[0]);
  write_end_ = Descriptor(ends[1]);
  if (!read_end_ || !write_end_) refuse(errno);
  for (const int end : {descriptor(), writing_end()}) {
    ::fcntl(end, F_SETFD, FD_CLOEXEC);
    ::fcntl(end, F_SETFL, O_NONBLOCK);
    raise_no_signal(end);
  }
}

void WakePipe::wake() {
  if (pending_.exchange(true, std::memory_order_acq_rel)) return;
  const char byte = 1;
  // If the pipe is full, its unread bytes wake the thread in poll(2).
  static_cast<void>(::write(writing_end(), &byte, 1) == 1);
}

void WakePipe::drain() {
  char bytes[64];
  while (::read(descriptor(), bytes, sizeof bytes) == static_cast<ssize_t>(sizeof bytes)) {
  }
  // The flag must be cleared after the reads. Otherwise a concurrent wake() could set the flag and
  // write a byte that is read here. The flag would stay set, and no later wake() would write. A
  // wake() just before this line writes no byte, but the caller looks for work after drain().
  pending_.exchange(false, std::memory_order_acq_rel);
}

void WakePipe::abandon() noexcept {
  read_end_.close();
  write_end_.close();
}

}  // namespace mccl
