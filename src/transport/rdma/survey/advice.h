// Error texts about a device of this host. Each says how to fix the problem, with a command.
#pragma once

#include <string>
#include <vector>

#include "transport/rdma/verbs/verbs.h"

namespace mccl::transport::rdma {

std::string not_there(const std::string& device, const std::vector<std::string>& there);
std::string port_down(const std::string& device, const Port& port);
/// `kind` is the value of MCCL_RDMA_GID; may be empty.
std::string without_address(const std::string& device, int port, const std::string& kind);

}  // namespace mccl::transport::rdma
