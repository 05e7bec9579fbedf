// The addresses of all ranks, told to each beforehand: how ranks find each other where no network
// joins all of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport/tcp/address.h"

namespace mccl::rendezvous {

/// By rank; each has one or more, the best first. A host may be a name.
using AddressTable = std::vector<std::vector<transport::tcp::HostPort>>;

/// JSON, one list of "host:port" for each rank, which is what MLX's ring calls a hostfile too:
/// [["10.0.41.2:5000", "10.0.12.1:5000"], ["10.0.12.2:5000"], …]. Throws InvalidArgument that names
/// `origin` for anything else, and for an address that two ranks have.
AddressTable parse_hostfile(std::string_view text, std::string_view origin);
/// The same of a file. Throws InvalidArgument.
AddressTable read_hostfile(const std::string& path);

/// "host:port", with brackets around an IPv6 address.
std::string text_of(const transport::tcp::HostPort& address);

/// True when ranks must look for the cables between them: not all may reach each other, or two
/// ranks may be joined by several cables of which each rank lists another end. False where all have
/// one host in common, and for two ranks whose addresses lie pair by pair in one small network.
bool may_be_sparse(const AddressTable& table);

}  // namespace mccl::rendezvous
