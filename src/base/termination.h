// What must be closed in order before SIGTERM ends the process, where nobody else sees to that.
//
// Devices that the kernel has to tidy up after keep queue pairs and pages for a while, and Apple's
// until the next boot. A program that leaves SIGTERM as it was gets a handler here once there is
// something to close; one that handles it itself ends as it likes.
#pragma once

#include <functional>
#include <memory>

namespace mccl {

/// Until what it returns is gone, `end` is called when SIGTERM comes, on a thread of its own. When
/// all have ended, or after some seconds, the process dies of the signal as it would have. Empty
/// where the program handles or ignores SIGTERM. When the last is gone, SIGTERM is as it was, and
/// no thread stays. `end` may still run while that which was returned goes.
[[nodiscard]] std::shared_ptr<void> at_termination(std::function<void()> end);

}  // namespace mccl
