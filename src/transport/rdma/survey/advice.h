// Error texts about devices: commands that fix a problem of this host, and a table that shows which
// devices lead from each rank to each other rank.
#pragma once

#include <string>
#include <vector>

#include "transport/rdma/verbs/verbs.h"

namespace mccl::transport::rdma {

std::string not_there(const std::string& device, const std::vector<std::string>& there);
std::string port_down(const std::string& device, const Port& port);
/// Error text about a port that has no address. `kind` is the value of MCCL_RDMA_GID; may be empty.
std::string without_address(const std::string& device, int port, const std::string& kind);

/// Texts of the cells of draw(): for a rank and itself, for two ranks without a cable, and for two
/// ranks whose device is missing.
inline constexpr const char* kSelf = ".";
inline constexpr const char* kNoCable = "-";
inline constexpr const char* kMissing = "MISSING";

/// Texts of the cells, indexed by row and column. draw() omits the last ranks if not all ranks fit
/// on a screen.
using Grid = std::vector<std::vector<std::string>>;

/// Returns the cells as a table, which begins with a line break. `names` holds the labels of the
/// rows, such as "rank 0". Columns are labelled with the rank, such as "to 0".
std::string draw(const Grid& cells, const std::vector<std::string>& names);

}  // namespace mccl::transport::rdma
