// Draws a table of ranks as text: from which rank, to which rank, over which devices. Used in
// errors about pairs, where it is easier to read than a list.
#pragma once

#include <string>
#include <vector>

namespace mccl::transport::rdma {

/// Texts of the cells for pairs without devices.
inline constexpr const char* kSelf = ".";
inline constexpr const char* kNoCable = "-";
inline constexpr const char* kMissing = "MISSING";

/// Cells by row and column. Only the first ranks are drawn if not all fit on a screen.
using Grid = std::vector<std::vector<std::string>>;

/// The result begins with a line break. `names` labels the rows: "rank 0". Columns are labelled
/// with the rank only.
std::string draw(const Grid& cells, const std::vector<std::string>& names);

}  // namespace mccl::transport::rdma
