// Lists the ranks that have arrived and those that have not, for errors about waits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mccl::rendezvous {

/// Returns "ranks 1 and 3 have not arrived; 0 and 2 have". `present` is indexed by rank; `done` is
/// the verb for the event.
std::string roll_call(const std::vector<bool>& present, std::string_view done = "arrived");

/// Store key, within a start, of the last process that was turned away because its rank was taken.
/// It may be the missing rank, misconfigured.
inline constexpr const char* kCameTwice = "twice";

}  // namespace mccl::rendezvous
