// Finds faults of hosts and of the connections between them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/finding.h"
#include "cluster/host_facts.h"
#include "cluster/links.h"
#include "cluster/paths.h"

namespace mccl::cluster {

/// Returns the findings in `facts.odd`, followed by the faults of the host.
Findings check_machine(const HostFacts& facts);

/// Finds settings in the host's environment that MCCL would refuse or that do not fit the host.
Findings check_settings(const HostFacts& facts);

/// Parses a table that `nvidia-smi topo` prints into a square matrix with one row and column per
/// GPU. A cell is a word such as "NV18", "PHB", "OK" or "CNS"; the diagonal is "X". Returns an
/// empty matrix if the row of any of the `count` GPUs is missing or incomplete.
std::vector<std::vector<std::string>> gpu_matrix(std::string_view text, std::size_t count);

/// Checks the connections between the GPUs of a host, as nvidia-smi reports them. check_machine()
/// includes these findings.
Findings check_gpus(const HostFacts& facts);

/// Finds hosts that are one machine under two names: the boot ID, the interfaces and their
/// addresses are the same. A container or a network namespace counts as a separate machine.
Findings check_identity(Hosts hosts);

/// Finds packages whose versions differ between hosts, and packages that some hosts have and others
/// lack.
Findings check_versions(Hosts hosts);

/// Runs check_identity() and check_versions(), and finds settings and network masks that differ,
/// clocks that differ from this machine's, and duplicate addresses.
Findings check_cluster(Hosts hosts);

/// Checks that a hostfile fits its hosts. `addresses` holds, for each host, the addresses that the
/// hostfile lists. Also checks the addresses that each host's MCCL_IFNAME and MCCL_LISTEN_ADDR
/// select.
Findings check_hostfile(Hosts hosts, std::span<const std::vector<std::string>> addresses);

/// Finds hosts that cannot receive discovery messages (see CallResults), and hosts whose own
/// firewall drops the answers to the messages that they sent.
Findings check_calls(Hosts hosts, const CallResults& calls);

/// Finds interfaces that have a carrier but exchanged no discovery message, perhaps because of a
/// firewall. Used when cables appear to be missing. Returns at most one finding.
Findings check_silence(Hosts hosts, const CallResults& calls);

/// Finds cables whose ends have addresses or MTUs that do not match.
Findings check_addressing(Hosts hosts, const Connectivity& joined);

/// Finds faults in the results of the path tests, and groups of hosts that no path joins.
Findings check_paths(Hosts hosts, Paths paths, const Connectivity& joined);

/// Returns the instructions to install mccl on a host that has no mccl, or another version of it.
/// They build mccl from source, because no package index offers it.
std::string how_to_install(const std::string& host);

}  // namespace mccl::cluster
