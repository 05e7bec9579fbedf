// Threads that the library starts.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace mccl {

/// Starts a thread that runs `body`. `name` appears in debuggers and in `top -H`; it has at most 15
/// characters, which is the limit of Linux. The thread blocks all signals except those raised by
/// its own faults, so that signals go to the program's own threads. Throws Error if the system
/// provides no thread; the message contains the limits in force.
std::thread start_thread(const std::string& name, std::function<void()> body);

}  // namespace mccl
