// The machines of a job, as users specify them.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli {

/// Larger numbers are probably mistakes.
inline constexpr std::size_t kMostHosts = 4096;
inline constexpr int kMostRanks = 4096;

struct Host {
  std::string name = "127.0.0.1";  ///< Name for ssh, without user and port.
  std::string user;                ///< Empty: ssh chooses the user.
  int port = 0;                    ///< 0: ssh chooses the port.
  /// Addresses at which the host's ranks listen; several give several links per pair of ranks.
  /// Empty: routing selects the address.
  std::vector<std::string> addresses;
  std::optional<int> slots;  ///< Number of ranks on the host, unless flags override it.
  std::string python;        ///< Python of the host's ranks; empty: JobRequest::python.
  std::string directory;     ///< Directory of the host's ranks; empty: JobRequest::directory.
  std::map<std::string, std::string> environment;
  /// This host's row of MLX's table of RDMA devices: for each host, null, or the device or list of
  /// devices that leads to it. Not an array if the hostfile has no such row.
  nlohmann::json rdma;
};

/// Parses "[user@]host[:port]". An IPv6 address with a port must be in brackets. Throws
/// InvalidArgument for any other text; the message begins with `where`.
Host parse_host(std::string_view where, std::string_view text);

/// Parses hosts separated by commas, as in --hosts.
std::vector<Host> parse_hosts(std::string_view where, std::string_view text);

/// Returns "[user@]host[:port]". An IPv6 address is in brackets if a port follows.
std::string text_of(const Host& host);

std::string name_of_this_machine();

/// True if the host's name is 127.0.0.1, ::1, localhost or this machine's name, and the host has no
/// user and no port. Its ranks are then started without ssh.
bool is_here(const Host& host);

/// Parses "NAME=VALUE". Throws like parse_host().
std::pair<std::string, std::string> parse_variable(std::string_view where, std::string_view text);

}  // namespace mccl::cli
