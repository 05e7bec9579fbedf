// What a host says of itself as JSON: `mccl probe` sends it, and `mccl doctor --json` prints it.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cluster/host_facts.h"
#include "cluster/text.h"

namespace mccl::cluster {

nlohmann::json json_of(const HostFacts& facts);

/// Reads what json_of() makes. Nothing is trusted: a value that cannot be understood is left out
/// and becomes a finding in `odd`. `host` is the host's name for people.
HostFacts read_facts(const std::string& host, const nlohmann::json& said);

/// Keeps every private IPv4 address and network in the text; `by` says what they are. An address
/// with a port behind a fifth dot, as netstat of macOS writes it, counts as the address.
void note_in_use(HostFacts& facts, std::string_view text, const std::string& by);
/// Lines of /proc/net/tcp or /proc/net/tcp6: keeps the far ends of connections that stand.
void note_tcp_peers(HostFacts& facts, std::string_view table);

/// Output of macOS's programs, by name: "ifconfig", "netstat", "system_profiler", "networksetup",
/// "ibv_devices" and "rdma_ctl".
using Outputs = std::map<std::string, std::string>;
void read_mac_network(HostFacts& facts, const Outputs& outputs);

/// Output of `nvidia-smi --query-gpu=name,memory.total,driver_version
/// --format=csv,noheader,nounits`.
void read_gpus(HostFacts& facts, std::string_view output);
/// Lines of a package and its version; all other lines are ignored.
void read_versions(HostFacts& facts, std::string_view output);
/// Keeps the version where both are plain names.
void keep_version(HostFacts& facts, const std::string& package, const std::string& version);
/// Keeps a setting of MCCL, and of a key only that it is set.
void keep_variable(HostFacts& facts, const std::string& name, const std::string& value);

/// Keeps the finding, up to a number that is enough for people.
void keep_odd(HostFacts& facts, Finding finding);
/// Notes that the output of `source` cannot be understood, and quotes its beginning.
void note_odd(HostFacts& facts, const std::string& source, const std::string& expected,
              std::string_view found);

/// A whole number that is not negative; 0 for everything else.
long count_of(std::string_view text);

/// Names of ports: macOS writes them in capitals, Linux does not.
std::string lower_case(std::string_view text);

/// Letters, digits and _.:@+- only, as names of interfaces, devices and versions are. Such a name
/// may stand in a command that root runs.
bool is_plain_name(std::string_view name);
/// The name if it is plain; otherwise notes it and returns nothing.
std::string plain_name(HostFacts& facts, const std::string& source, std::string_view name);

}  // namespace mccl::cluster
