// Error codes by which system calls on a non-blocking socket report that they would block.
#pragma once

#include <cerrno>
#include <chrono>
#include <thread>

namespace mccl {

/// True if the system call must be repeated once poll(2) reports the socket ready, or after a short
/// while.
constexpr bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS;
}

/// True for the error that macOS returns if a network interface's queue is full, although poll(2)
/// reports the socket writable.
constexpr bool lacks_memory(int error) { return error == ENOBUFS; }

/// Sleeps 1 ms if lacks_memory(error). Call this before a system call is repeated: otherwise a loop
/// that relies on poll(2) would occupy a core until the queue has space. Links, which carry more
/// data, wait without blocking their thread (transport/tcp/socket.h).
inline void nap_if_memory_is_short(int error) {
  if (lacks_memory(error)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace mccl
