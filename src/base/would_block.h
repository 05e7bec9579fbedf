// Error codes of a non-blocking socket for calls that would have to wait.
#pragma once

#include <cerrno>
#include <chrono>
#include <thread>

namespace mccl {

/// True if the call must be repeated once poll(2) reports the socket ready, or after a short while.
constexpr bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS;
}

/// True for the error that macOS returns if a network interface's queue is full, although poll(2)
/// reports the socket writable.
constexpr bool lacks_memory(int error) { return error == ENOBUFS; }

/// Called before the call is repeated: a loop that relies on poll(2) would occupy a core until the
/// queue has room. Links, which carry more data, wait without blocking their thread
/// (transport/tcp/shortage.h).
inline void nap_if_memory_is_short(int error) {
  if (lacks_memory(error)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace mccl
