// What a socket that does not wait says when it would have to.
#pragma once

#include <cerrno>
#include <chrono>
#include <thread>

namespace mccl {

/// Whether the call is to be made again once poll(2) says so, or a little later.
constexpr bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS;
}

/// What macOS says of an interface whose queue is full, though it calls the socket writable.
constexpr bool lacks_memory(int error) { return error == ENOBUFS; }

/// Before the call is made again: a loop that trusts poll(2) would take a core until the queue has
/// room. Links, which carry more, wait without holding up their thread (transport/tcp/shortage.h).
inline void nap_if_memory_is_short(int error) {
  if (lacks_memory(error)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace mccl
