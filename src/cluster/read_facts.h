// Converts a host's facts to and from JSON, and parses the output of system programs into facts.
// `mccl probe` sends the JSON, and `mccl doctor --json` prints it.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>

#include "cluster/host_facts.h"
#include "cluster/text.h"

namespace mccl::cluster {

nlohmann::json json_of(const HostFacts& facts);

/// Returns a member of untrusted JSON; T{} if it is missing or has another type.
template <typename T>
T value_at(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end()) return {};
  if constexpr (std::is_same_v<T, std::string>) {
    return found->is_string() ? found->get<T>() : T{};
  } else if constexpr (std::is_same_v<T, bool>) {
    return *found == true;
  } else {
    return found->is_number() ? found->get<T>() : T{};
  }
}

/// Parses the output of json_of(). The JSON is untrusted: an invalid value is dropped, and usually
/// adds a finding to HostFacts::odd. `host` is the displayed name of the host.
HostFacts read_facts(const std::string& host, const nlohmann::json& said);

/// Adds every private IPv4 address and network in the text to `in_use`; `by` describes their use. A
/// port after a fourth dot, as macOS's netstat writes it, is ignored.
void note_in_use(HostFacts& facts, std::string_view text, const std::string& by);
/// Adds the peers of established connections to `in_use`. `table` is the content of /proc/net/tcp
/// or /proc/net/tcp6.
void note_tcp_peers(HostFacts& facts, std::string_view table);

/// Output of macOS's programs, keyed by name: "ifconfig", "netstat", "system_profiler",
/// "networksetup", "ibv_devices" and "rdma_ctl".
using Outputs = std::map<std::string, std::string>;
void read_mac_network(HostFacts& facts, const Outputs& outputs);

/// Parses the output of `nvidia-smi --query-gpu=name,memory.total,driver_version
/// --format=csv,noheader,nounits`.
void read_gpus(HostFacts& facts, std::string_view output);
/// Parses lines such as "torch 2.4.0", and ignores all others.
void read_versions(HostFacts& facts, std::string_view output);
/// Adds the version if the name of the package is plain (is_plain_name()). A version that is not
/// plain adds a finding and is stored as an empty string.
void keep_version(HostFacts& facts, const std::string& package, const std::string& version);
/// Adds an MCCL_* setting, with the value "(set)" for a secret, whose name ends with KEY. Ignores
/// other variables.
void keep_variable(HostFacts& facts, const std::string& name, const std::string& value);

/// Adds the finding to `odd`. No-op if `odd` already holds 16 findings.
void keep_odd(HostFacts& facts, Finding finding);
/// Adds a finding that reports invalid output of `source` and quotes the beginning of `found`.
void note_odd(HostFacts& facts, const std::string& source, const std::string& expected,
              std::string_view found);

/// Parses a non-negative integer. Returns 0 for anything else.
long count_of(std::string_view text);

/// Converts ASCII letters to lower case. Port UUIDs are in upper case on macOS, but not on Linux.
std::string lower_case(std::string_view text);

/// True for 1 to 64 letters, digits and _.:@+- without a leading "-", as in names of interfaces,
/// devices and versions. A plain name is safe in a command that root runs.
bool is_plain_name(std::string_view name);
/// Returns the name if it is plain or empty. Otherwise adds a finding and returns an empty string.
std::string plain_name(HostFacts& facts, const std::string& source, std::string_view name);

}  // namespace mccl::cluster
