// Threads that the library starts, and the pause of a thread that spins.
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

/// Tells the core that this thread looks at memory again and again until another thread changes it.
inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace mccl
