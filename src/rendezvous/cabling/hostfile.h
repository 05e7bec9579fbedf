// Reads the hostfile, which lists the addresses of all ranks and is given to every rank in advance.
// With it, ranks find each other even if no network joins all of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/connections/names.h"

namespace mccl::rendezvous {

/// The addresses in the hostfile, indexed by rank. Each rank has at least one address; its
/// addresses are in order of preference. A host may be a name.
using AddressTable = std::vector<std::vector<HostPort>>;

/// Parses JSON with one list of "host:port" per rank, the format of the hostfile of MLX's ring:
/// [["10.0.41.2:5000", "10.0.12.1:5000"], ["10.0.12.2:5000"], …]. Throws InvalidArgument if the
/// text has another form or if two ranks share an address; the message contains `origin`.
AddressTable parse_hostfile(std::string_view text, std::string_view origin);
/// Reads and parses the file at `path`. Throws InvalidArgument if it is unreadable or malformed.
AddressTable read_hostfile(const std::string& path);

/// Returns "host:port", with brackets around an IPv6 address.
std::string text_of(const HostPort& address);

/// True if the ranks must search for the cables between them: some ranks may not reach each other,
/// or several cables may join two ranks. False if all ranks list a common host. Also false for two
/// ranks that list equally many hosts, if hosts with the same index lie in one small network (an
/// IPv4 /30 or an IPv6 /64).
bool may_be_sparse(const AddressTable& table);

/// True for a job of two ranks if the addresses with the same index in the two ranks' lists are in
/// one network of this host. The ranks then need no relays, so wire() returns null.
bool share_networks(const AddressTable& table, int rank);

/// Returns the addresses of this host that the table lists for `rank`, without duplicates. A name
/// that resolves to no address of this host is replaced by the wildcard address. A wildcard
/// replaces all other addresses with the same port.
std::vector<Address> own_addresses(const AddressTable& table, int rank);

/// True if a listener at one of `addresses` also accepts connections to `wanted`.
bool is_covered(const Address& wanted, const std::vector<Address>& addresses);

}  // namespace mccl::rendezvous
