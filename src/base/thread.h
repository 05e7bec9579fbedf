// Threads that the library starts.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace mccl {

/// Starts a thread that runs `body`. `name`, at most 15 characters because systems keep no more,
/// appears in debuggers and in `top -H`. The thread blocks all signals, which are for the program's
/// own threads, except those raised by its own faults. Throws Error, which names the limits in
/// force, if the system provides no thread.
std::thread start_thread(const std::string& name, std::function<void()> body);

}  // namespace mccl
