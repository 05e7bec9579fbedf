// Closes devices properly before SIGTERM ends the process, if the program does not handle SIGTERM.
//
// If a process ends without closing an RDMA device, the kernel has to close it. Queue pairs and
// pages of the device then stay in use for a while or, on Apple's devices, until the next boot. If
// SIGTERM has its default action, at_termination() installs a handler. The handler stays until all
// objects that at_termination() returned are destroyed. A program that handles SIGTERM itself keeps
// its own handler.
#pragma once

#include <functional>
#include <memory>

namespace mccl {

/// If SIGTERM arrives while the returned object exists, calls `end` on a separate thread. The
/// signal ends the process once all registered functions have returned, or after 3 seconds. Returns
/// null if the program handles or ignores SIGTERM, or if there is no thread or no pipe for it. When
/// the last object is destroyed, SIGTERM is reset to its default and no thread remains. `end` may
/// still be running while its object is destroyed.
[[nodiscard]] std::shared_ptr<void> at_termination(std::function<void()> end);

}  // namespace mccl
