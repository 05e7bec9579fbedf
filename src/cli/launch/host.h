// The machines of a job, as people name them.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli::launch {

/// Of a job. Beyond them a number is more likely a slip.
inline constexpr std::size_t kMostHosts = 4096;
inline constexpr int kMostRanks = 4096;

struct Host {
  std::string name = "127.0.0.1";  ///< What ssh is asked for, without user and port.
  std::string user;                ///< Empty: as ssh finds it.
  int port = 0;                    ///< 0: as ssh finds it.
  /// Where its ranks listen; more than one gives several links per pair. Empty: found by routing.
  std::vector<std::string> addresses;
  std::optional<int> slots;  ///< Ranks on it, unless flags say otherwise.
  std::string python;        ///< Empty: as on this machine.
  std::string directory;     ///< Empty: as on this machine.
  std::map<std::string, std::string> environment;
  /// Of MLX: the device, or null, to reach each host with; not an array when there is none.
  nlohmann::json rdma;
};

/// "[user@]host[:port]", where host is a name, an IPv4 address, or an IPv6 address, in brackets
/// when a port follows. Throws InvalidArgument that begins with `where`.
Host parse_host(std::string_view where, std::string_view text);

/// Names separated by commas, as in --hosts.
std::vector<Host> parse_hosts(std::string_view where, std::string_view text);

/// As ssh takes it: "user@host", and the port where one is given.
std::string text_of(const Host& host);

/// Whether ranks of it are started without ssh: 127.0.0.1, ::1, localhost, or this machine's name.
bool is_here(const Host& host);

/// "NAME=VALUE". Throws InvalidArgument that begins with `where`.
std::pair<std::string, std::string> parse_variable(std::string_view where, std::string_view text);

}  // namespace mccl::cli::launch
