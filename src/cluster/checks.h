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

/// Returns the findings in `facts.odd`, which describe facts that could not be gathered or parsed,
/// followed by the faults of the host.
std::vector<Finding> check_machine(const HostFacts& facts);

/// Finds settings in the host's environment that MCCL would refuse or that do not fit the host.
std::vector<Finding> check_settings(const HostFacts& facts);

/// Parses a table that `nvidia-smi topo` prints into a square matrix with one row and column per
/// GPU. A cell is a word such as "NV18", "PHB", "OK" or "CNS"; the diagonal is "X". Returns an
/// empty matrix if the row of any of the `count` GPUs is missing or incomplete.
std::vector<std::vector<std::string>> gpu_matrix(std::string_view text, std::size_t count);

/// Checks the connections between the GPUs of a host, as nvidia-smi reports them. check_machine()
/// includes these findings.
std::vector<Finding> check_gpus(const HostFacts& facts);

/// Finds hosts that are one machine under two names: the boot ID, the interfaces and their
/// addresses are the same. A container or a network namespace counts as a separate machine.
std::vector<Finding> check_identity(std::span<const HostFacts> hosts);

/// Finds packages whose versions differ between hosts, and packages that some hosts have and others
/// lack.
std::vector<Finding> check_versions(std::span<const HostFacts> hosts);

/// Runs check_identity() and check_versions(), and finds settings and network masks that differ,
/// clocks that differ from this machine's, and duplicate addresses.
std::vector<Finding> check_cluster(std::span<const HostFacts> hosts);

/// Checks that a hostfile fits its hosts. `addresses` holds, for each host, the addresses that the
/// hostfile lists. Also checks the addresses that each host's MCCL_IFNAME and MCCL_LISTEN_ADDR
/// select.
std::vector<Finding> check_hostfile(std::span<const HostFacts> hosts,
                                    std::span<const std::vector<std::string>> addresses);

/// Finds hosts that cannot receive discovery messages (see CallResults), and hosts whose own
/// firewall drops the answers to the messages that they sent.
std::vector<Finding> check_calls(std::span<const HostFacts> hosts, const CallResults& calls);

/// Finds interfaces that have a carrier but exchanged no discovery message, perhaps because a
/// firewall drops such messages. Used when cables appear to be missing. Returns at most one
/// finding, which lists all these interfaces.
std::vector<Finding> check_silence(std::span<const HostFacts> hosts, const CallResults& calls);

/// Finds cables whose ends have addresses or MTUs that do not match. Does not need the results of
/// path tests.
std::vector<Finding> check_addressing(std::span<const HostFacts> hosts, const Connectivity& joined);

/// Finds faults in the results of the path tests, and groups of hosts that no path joins.
std::vector<Finding> check_paths(std::span<const HostFacts> hosts,
                                 std::span<const InterfacePath> paths, const Connectivity& joined);

/// Returns the instructions to install mccl on the host. Used if the host has no mccl, or another
/// version of it. The instructions build mccl from source, because no package index offers it.
std::string how_to_install(const std::string& host);

}  // namespace mccl::cluster
