// Gives a test access to memory through the system, as a rank reads the memory of another rank.
#pragma once

#ifdef __linux__

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "base/descriptor.h"
#include "node/peer_memory.h"

namespace mccl::testing {

/// Keeps a descriptor of a process, and returns the memory of the process, which has to contain the
/// header of an arena.
class ProcessMemory {
 public:
  explicit ProcessMemory(pid_t pid)
      : pid_(pid), process_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
  node::PeerMemory memory(const node::ArenaHeader& header) const {
    return {pid_, process_.get(), header};
  }

 private:
  pid_t pid_;
  Descriptor process_;
};

inline const ProcessMemory& own_process() {
  static const ProcessMemory own(::getpid());
  return own;
}

/// A child process that waits until it is killed. Its memory is a copy of the test's at the time of
/// the fork; later mappings of the test do not exist in it.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ == 0) {
      for (;;) ::pause();
    }
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

}  // namespace mccl::testing

#endif
