// The devices by which hosts reach each other: what MLX's jaccl can make of them.
#pragma once

#include <string_view>
#include <vector>

#include "cli/launch/backend.h"
#include "cli/launch/host.h"

namespace mccl::cli::launch {

/// Throws InvalidArgument, beginning with `where`, where the hosts' "rdma" is neither a mesh, every
/// pair of hosts with a device each, nor a ring, the same for neighbours: for jaccl only a mesh
/// will do, and for jaccl-ring only a ring. Hosts without any pass unless the backend is one of
/// these.
void check_rdma(std::string_view where, const std::vector<Host>& hosts, Backend backend);

}  // namespace mccl::cli::launch
