// What a device of this host lacks, in words that end with the command that gives it.
#pragma once

#include <string>
#include <vector>

#include "transport/rdma/verbs.h"

namespace mccl::transport::rdma {

std::string not_there(const std::string& device, const std::vector<std::string>& there);
std::string port_down(const std::string& device, const Port& port);
/// Of the kind that MCCL_RDMA_GID names, where it does.
std::string without_address(const std::string& device, int port, const std::string& kind);

}  // namespace mccl::transport::rdma
