#include "node/peer_memory.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace mccl::node {

int PeerMemory::read([[maybe_unused]] std::uint64_t address,
                     [[maybe_unused]] std::span<std::byte> to) const {
#ifdef __linux__
  if (!*this) return ENOSYS;
  while (!to.empty()) {
    const iovec local = {to.data(), to.size()};
    const iovec remote = {reinterpret_cast<void*>(address), to.size()};
    const ssize_t n = ::process_vm_readv(pid_, &local, 1, &remote, 1, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return EFAULT;
    address += static_cast<std::uint64_t>(n);
    to = to.subspan(static_cast<std::size_t>(n));
  }
  // The system may give the number of a process that has ended to a new one.
  pollfd entry = {process_, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 0 ? 0 : ESRCH;
#else
  return ENOSYS;
#endif
}

std::string PeerMemory::obstacle(const ArenaHeader& header) const {
  if (!*this) return "this system offers no access to the memory of other processes";
  std::uint64_t token = 0;
  const std::uint64_t address = header.address + offsetof(ArenaHeader, token);
  const int error = read(address, std::as_writable_bytes(std::span(&token, 1)));
  if (error == EPERM || error == EACCES)
    return "the system forbids it (see kernel.yama.ptrace_scope and the container's rules)";
  if (error != 0) return fmt::format("the system refuses it: {}", std::strerror(error));
  return token == header.token ? "" : "the process is not the one that shares the memory";
}

}  // namespace mccl::node
