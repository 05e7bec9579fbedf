// Requests the flight record when SIGUSR1 or SIGUSR2 arrives.
#pragma once

#include <atomic>
#include <memory>
#include <string_view>

namespace mccl::engine {

/// Until the returned object is destroyed, the signal sets `flag` and writes a byte to the
/// descriptor `wake_end`. `name` is USR1 or USR2. Returns null, without changing the signal's
/// action, if the program handles or ignores the signal, or if the process already holds 64 such
/// objects.
[[nodiscard]] std::shared_ptr<void> on_record_signal(std::string_view name, std::atomic<bool>& flag,
                                                     int wake_end);

}  // namespace mccl::engine
