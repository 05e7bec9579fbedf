// Checks the table of RDMA devices through which hosts reach each other. MLX's jaccl uses it.
#pragma once

#include <string_view>
#include <vector>

#include "cli/launch/backend.h"
#include "cli/launch/host.h"

namespace mccl::cli::launch {

/// True if the table of devices is complete: every host has a list with an entry for each host.
bool is_whole_table(const std::vector<Host>& hosts);

/// Checks the hosts' "rdma" tables. A mesh has a device for every pair of hosts; a ring has one for
/// each pair of neighbours. jaccl needs a mesh, and any other backend needs at least a ring. An
/// incomplete table is an error for jaccl and jaccl-ring only, since other backends do not read it.
/// Throws InvalidArgument for such errors; the message begins with `where`.
void check_rdma(std::string_view where, const std::vector<Host>& hosts, Backend backend);

}  // namespace mccl::cli::launch
