// What must be closed in order before SIGTERM ends the process, where nobody else sees to that.
//
// Devices that the kernel has to tidy up after keep queue pairs and pages for a while, and Apple's
// until the next boot. A program that leaves SIGTERM as it was gets a handler here once there is
// something to close; one that handles it itself ends as it likes.
#pragma once

#include <functional>
#include <memory>

namespace mccl {

/// From now on `end` is called when SIGTERM comes, on a thread of its own, as long as `owner`
/// lives. When all have ended, or after some seconds, the process dies of the signal as it would
/// have. Does nothing where the program handles or ignores SIGTERM.
void at_termination(std::weak_ptr<void> owner, std::function<void()> end);

}  // namespace mccl
