// Threads of the library's own.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace mccl {

/// A thread that runs `body`, named `name` (at most 15 characters, as systems keep no more) in
/// debuggers and in `top -H`. Signals are for the program's own threads: here all are blocked but
/// those that a fault of the thread itself raises. Throws Error, which names the limits in force,
/// where the system gives no thread.
std::thread start_thread(const std::string& name, std::function<void()> body);

}  // namespace mccl
