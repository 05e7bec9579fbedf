// Waits that Control-C can interrupt.
#pragma once

#include <chrono>
#include <optional>

#include "mccl/work.h"

namespace mccl_torch {

/// Maximum delay until a signal is handled.
inline constexpr std::chrono::milliseconds kSignalInterval{50};

/// Finds the thread that runs signal handlers. Called once, with the GIL held.
void find_main_thread();

/// Runs the handlers of pending signals if this is the main thread; takes the GIL to do so. Throws
/// pybind11::error_already_set if a handler raised.
void check_signals();

/// Blocks until the call is done or `timeout` has passed, and runs signal handlers meanwhile. If
/// one raises, the wait ends and the call continues.
void wait_with_signals(const mccl::Work& work,
                       std::optional<std::chrono::milliseconds> timeout = {});

}  // namespace mccl_torch
