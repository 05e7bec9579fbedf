// A table of ranks drawn in text: from whom, to whom, and by what. For errors about pairs, which
// say more at a glance than in a list.
#pragma once

#include <string>
#include <vector>

namespace mccl::transport::rdma {

/// What stands in place of devices.
inline constexpr const char* kSelf = ".";
inline constexpr const char* kNoCable = "-";
inline constexpr const char* kMissing = "MISSING";

/// By row and column. Of more ranks than fit on a screen, the first.
using Grid = std::vector<std::vector<std::string>>;

/// Begins on a line of its own. `names`: of the rows, "rank 0"; columns have the rank alone.
std::string draw(const Grid& cells, const std::vector<std::string>& names);

}  // namespace mccl::transport::rdma
