// Lists the ranks that have arrived and those that have not, for errors about waits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mccl::rendezvous {

/// Lists the absent ranks, then the present ones: "ranks 1 and 3 have not arrived; 0 and 2 have".
/// `present` is indexed by rank; `done` is the participle used in the text.
std::string roll_call(const std::vector<bool>& present, std::string_view done = "arrived");

/// Store key, within a run of the job. Its value describes the last process that was turned away
/// because its rank was taken. That process may be a missing rank that is misconfigured.
inline constexpr const char* kCameTwice = "twice";

}  // namespace mccl::rendezvous
