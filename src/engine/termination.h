// Closes devices properly before SIGTERM ends the process, if the program does not handle SIGTERM.
//
// If the kernel has to clean up a device, its queue pairs and pages stay in use for a while; on
// Apple's devices, until the next boot. If the program left SIGTERM at its default,
// at_termination() installs a handler as long as there is something to close. A program that
// handles SIGTERM itself keeps its own handler.
#pragma once

#include <functional>
#include <memory>

namespace mccl {

/// Calls `end` when SIGTERM arrives, on a separate thread, as long as the returned object exists.
/// Once all such functions have returned, or after some seconds, the signal ends the process.
/// Returns null if the program handles or ignores SIGTERM. When the last object is destroyed,
/// SIGTERM is reset to its default and no thread remains. `end` may still be running while its
/// object is destroyed.
[[nodiscard]] std::shared_ptr<void> at_termination(std::function<void()> end);

}  // namespace mccl
