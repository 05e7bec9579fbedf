// Who has come, and who has not, for those who waited in vain.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mccl::rendezvous {

/// "ranks 1 and 3 have not come; 0 and 2 have". `present` is by rank; `done` is what the others
/// have done.
std::string roll_call(const std::vector<bool>& present, std::string_view done = "come");

/// Under this key of a start's store stands who came last with a rank that was taken, and was
/// turned away: it may be the one that is missing.
inline constexpr const char* kCameTwice = "twice";

}  // namespace mccl::rendezvous
