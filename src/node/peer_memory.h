// Reads the memory of another process of this host with one copy, without its participation:
// Linux's process_vm_readv(2). The system permits it between processes of one user, unless a rule
// for debuggers (Yama's ptrace_scope) or a container's filter of system calls forbids it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "node/arena.h"

namespace mccl::node {

/// The memory of one process. Thread-safe.
class PeerMemory {
 public:
  /// The memory of no process: read() fails.
  PeerMemory() = default;
  /// `pid` names the process, and `process` refers to it (pidfd_open(2)). The descriptor must
  /// outlive this object. It shows whether `pid` still names that process. `header`: of the arena
  /// that the process made. Its token shows whether the process still runs the program that made
  /// it: execve(2) replaces the memory of a process, but keeps its number and its descriptor.
  PeerMemory(pid_t pid, int process, const ArenaHeader& header);

  explicit operator bool() const { return pid_ > 0 && process_ >= 0; }

  /// Copies the bytes at `address` in the process's memory to `to`, at most 1 GiB. Returns 0, or an
  /// errno: EFAULT if the system cannot read all of these bytes, ESRCH if the process has ended,
  /// ESTALE if the token is not in its memory, EPERM if the system forbids it, ENOSYS if the system
  /// cannot read the memory of other processes. After a failure, the content of `to` is undefined.
  int read(std::uint64_t address, std::span<std::byte> to) const;

  /// Returns the reason why read() fails at any address; empty if it does not.
  std::string obstacle() const;

 private:
  pid_t pid_ = 0;
  int process_ = -1;
  std::uint64_t token_address_ = 0;
  [[maybe_unused]] std::uint64_t token_ = 0;  // used on Linux only
};

/// True if the system lets other processes of this user copy this memory of the calling process. It
/// does not for memory that belongs to a device, nor once this process has changed its user. Looks
/// at the first and the last byte only.
bool can_be_copied(std::span<const std::byte> memory);

}  // namespace mccl::node
