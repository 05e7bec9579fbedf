// Error texts about devices: commands that fix a problem of this host, and a table of ranks that
// shows from which rank, to which rank, and over which devices.
#pragma once

#include <string>
#include <vector>

#include "transport/rdma/verbs/verbs.h"

namespace mccl::transport::rdma {

std::string not_there(const std::string& device, const std::vector<std::string>& there);
std::string port_down(const std::string& device, const Port& port);
/// Text for a port without an address. `kind` is the value of MCCL_RDMA_GID; may be empty.
std::string without_address(const std::string& device, int port, const std::string& kind);

/// Texts of the cells for pairs without devices.
inline constexpr const char* kSelf = ".";
inline constexpr const char* kNoCable = "-";
inline constexpr const char* kMissing = "MISSING";

/// Cells by row and column. Only the first ranks are drawn if not all fit on a screen.
using Grid = std::vector<std::vector<std::string>>;

/// Returns the cells as a table, which begins with a line break. `names` labels the rows: "rank 0".
/// Columns are labelled with the rank only.
std::string draw(const Grid& cells, const std::vector<std::string>& names);

}  // namespace mccl::transport::rdma
