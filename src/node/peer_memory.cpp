#include "node/peer_memory.h"

#include <fmt/format.h>
#include <poll.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace mccl::node {

PeerMemory::PeerMemory(pid_t pid, int process, const ArenaHeader& header)
    : pid_(pid),
      process_(process),
      token_address_(header.address + offsetof(ArenaHeader, token)),
      token_(header.token) {}

int PeerMemory::read([[maybe_unused]] std::uint64_t address,
                     [[maybe_unused]] std::span<std::byte> to) const {
#ifdef __linux__
  if (!*this) return ENOSYS;
  std::uint64_t token = 0;
  const std::array<iovec, 2> local = {{{to.data(), to.size()}, {&token, sizeof token}}};
  const std::array<iovec, 2> remote = {
      {{std::bit_cast<void*>(static_cast<std::uintptr_t>(address)), to.size()},
       {std::bit_cast<void*>(static_cast<std::uintptr_t>(token_address_)), sizeof token}}};
  // One call reads both from the same program, even if the process calls execve() meanwhile.
  ssize_t n = 0;
  do {
    n = ::process_vm_readv(pid_, local.data(), local.size(), remote.data(), remote.size(), 0);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return errno;
  if (static_cast<std::size_t>(n) != to.size() + sizeof token) return EFAULT;
  if (token != token_) return ESTALE;
  // The system may give the number of a process that has ended to a new one.
  pollfd entry = {process_, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 0 ? 0 : ESRCH;
#else
  return ENOSYS;
#endif
}

bool can_be_copied([[maybe_unused]] std::span<const std::byte> memory) {
#ifdef __linux__
  if (::prctl(PR_GET_DUMPABLE) != 1) return false;
  std::array<std::byte, 2> ends;
  const auto address = [](const std::byte& byte) { return const_cast<std::byte*>(&byte); };
  const iovec local = {ends.data(), ends.size()};
  const std::array<iovec, 2> remote = {{{address(memory.front()), 1}, {address(memory.back()), 1}}};
  return ::process_vm_readv(::getpid(), &local, 1, remote.data(), remote.size(), 0) == 2;
#else
  return false;
#endif
}

std::string PeerMemory::obstacle() const {
  if (!*this) return "it needs Linux 5.3 or later, and ranks in one PID namespace";
  const int error = read(token_address_, {});
  if (error == EPERM || error == EACCES)
    return "the system forbids it (see kernel.yama.ptrace_scope and the container's rules)";
  if (error == ESTALE || error == EFAULT)
    return "the process is not the one that shares the memory";
  return error == 0 ? "" : fmt::format("the system refuses it: {}", std::strerror(error));
}

}  // namespace mccl::node
