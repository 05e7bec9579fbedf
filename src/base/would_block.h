// What a socket that does not wait says when it would have to.
#pragma once

#include <cerrno>

namespace mccl {

/// Whether the call is to be made again once poll(2) says so. macOS says ENOBUFS of an interface
/// whose queue is full.
constexpr bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS;
}

}  // namespace mccl
