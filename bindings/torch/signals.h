// Waits that Control-C ends.
#pragma once

#include <chrono>
#include <optional>

#include "mccl/work.h"

namespace mccl_torch {

/// How late a signal is seen at most.
inline constexpr std::chrono::milliseconds kSignalInterval{50};

/// Remembers which thread runs signal handlers. With the GIL, once.
void find_main_thread();

/// Runs the handlers of signals that have come, where this is the thread for it; takes the GIL for
/// that. Throws what one raised: pybind11::error_already_set.
void check_signals();

/// As work.wait(timeout), running signal handlers meanwhile. When one raises, nobody waits any more
/// and the call goes on.
void wait_with_signals(const mccl::Work& work,
                       std::optional<std::chrono::milliseconds> timeout = {});

}  // namespace mccl_torch
