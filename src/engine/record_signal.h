// Lets a signal ask for the flight record.
#pragma once

#include <atomic>
#include <memory>
#include <string_view>

namespace mccl::engine {

/// Until the returned object is destroyed, the signal sets `flag` and writes a byte to the
/// descriptor `wake_end`. `name` is USR1 or USR2. Returns null, and leaves the signal alone, if the
/// program handles or ignores it, or if too many contexts of the process have asked already.
[[nodiscard]] std::shared_ptr<void> on_record_signal(std::string_view name, std::atomic<bool>& flag,
                                                     int wake_end);

}  // namespace mccl::engine
