// The devices by which hosts reach each other: what MLX's jaccl can make of them.
#pragma once

#include <string_view>
#include <vector>

#include "cli/launch/backend.h"
#include "cli/launch/host.h"

namespace mccl::cli::launch {

/// True when every host has a list with an entry for each host.
bool is_whole_table(const std::vector<Host>& hosts);

/// Throws InvalidArgument, beginning with `where`, where the hosts' "rdma" is neither a mesh, every
/// pair of hosts with a device each, nor a ring, the same for neighbours: for jaccl only a mesh
/// will do, and for jaccl-ring only a ring. What is no whole table passes unless the backend is one
/// of these: others do not read it.
void check_rdma(std::string_view where, const std::vector<Host>& hosts, Backend backend);

}  // namespace mccl::cli::launch
