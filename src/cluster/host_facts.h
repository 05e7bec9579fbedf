// The facts known about one host.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cluster/finding.h"
#include "cluster/network.h"
#include "cluster/network6.h"

namespace mccl::cluster {

enum class System { unknown, gnu_linux, macos };

std::string_view name_of(System system);

enum class Medium { cable, thunderbolt, wireless, software, loopback };

std::string_view name_of(Medium medium);

struct Interface {
  std::string name;
  Medium medium = Medium::cable;
  bool up = false;
  /// True if the cable is connected at its far end; absent if the system does not report it.
  std::optional<bool> carrier;
  int mbit_per_s = 0;  ///< 0 if unknown.
  int mtu = 0;         ///< 0 if unknown.
  std::string mac;
  std::vector<Network> addresses;
  std::vector<Network6> addresses6;     ///< Lasting addresses that are not link-local.
  std::vector<std::string> link_local;  ///< IPv6 link-local addresses.
  std::string bridge;                   ///< The bridge of which the interface is a member.
  bool joins = false;                   ///< True for a bridge or a tunnel, which has no cable.
  std::string rdma;                     ///< The interface's RDMA device, if any.
  /// Linux's reverse-path filter. With 1, Linux drops packets that arrive on another interface than
  /// the replies would leave through.
  int rp_filter = 0;

  bool usable() const { return up && carrier.value_or(true); }
};

struct Route {
  Network to;
  std::string interface;  ///< Empty if there is none or it is unknown.
};

/// An address that the host uses, or the network of one. Cables must not be given these addresses.
struct InUse {
  Network network;
  std::string by;  ///< The kind of use, such as "a DNS server".
};

/// A Thunderbolt port, and the computer at the far end of its cable.
struct Port {
  std::string receptacle;
  std::string interface;
  std::string own;   ///< The UUID of this end.
  std::string peer;  ///< The UUID of the other end; empty if no computer is connected.
  std::string peer_name;
  int mbit_per_s = 0;
  bool through_dock = false;
};

struct RdmaDevice {
  std::string name;
  std::string interface;
  std::string state;  ///< State of the port in the system's words, such as "ACTIVE".
  int mbit_per_s = 0;
  std::vector<std::string> gids;
};

struct Gpu {
  std::string name;
  int memory_mib = 0;
  std::string driver;
};

/// The defaults describe a host about which nothing is known yet.
struct HostFacts {
  std::string host;  ///< The host's name for people.
  System system = System::unknown;
  std::string os;
  std::string kernel;
  std::string boot;  ///< Boot ID, unique to each start of the host.
  std::string processor;
  int cores = 0;
  std::string governor;
  int mhz = 0;
  int most_mhz = 0;
  double memory_gib = 0;
  double load = 0;
  int ranks = 0;  ///< Running ranks of jobs that this user may see.
  bool is_root = false;
  bool has_sudo = false;  ///< True if sudo needs no password.
  /// Resource limits, in files and KiB. Absent if unknown; kNoLimit if unlimited.
  std::optional<long> open_files;
  std::optional<long> most_open_files;
  std::optional<long> locked_kib;
  std::optional<long> shared_kib;  ///< Free space in /dev/shm.
  bool shared_writable = true;
  std::string mccl;  ///< Path of the program; empty if not installed.
  /// The host's address to which ssh connected; empty for the local machine.
  std::string asked_at;
  std::map<std::string, std::string> versions;
  std::map<std::string, std::string> variables;  ///< Environment variables named MCCL_*.
  std::vector<Interface> interfaces;
  std::vector<Route> routes;  ///< IPv4 routes except the default route.
  std::vector<InUse> in_use;  ///< Private addresses that the host uses, other than its own.
  /// The program that configures interface addresses at a restart: "netplan", "NetworkManager",
  /// "systemd-networkd" or "networksetup". Empty if it is none of these.
  std::string network_manager;
  /// True while an unconfirmed set-up is active on the host. It will be undone unless it is
  /// confirmed.
  bool setup_unconfirmed = false;
  std::vector<Port> ports;
  std::vector<RdmaDevice> rdma;
  std::string rdma_control;  ///< Output of macOS's rdma_ctl.
  std::vector<Gpu> gpus;
  std::string gpu_links;  ///< Output of nvidia-smi topo -m.
  std::string gpu_peers;  ///< Output of nvidia-smi topo -p2p r.
  /// Lower bound, in seconds, of the host's clock offset from this machine. Positive if the host is
  /// ahead.
  double clock_off_s = 0;
  std::vector<Finding> odd;  ///< One finding per answer that could not be parsed.

  const Interface* interface(const std::string& name) const;
  /// Splits a comma-separated setting into its items. Returns an empty vector if it is not set.
  std::vector<std::string> items_of(const std::string& variable) const;
};

inline constexpr long kNoLimit = -1;
/// Prefix of the folders in /tmp that mark an unconfirmed set-up. The guard of the set-up touches
/// the file `waits` in its folder every second.
inline constexpr const char* kGuardPrefix = "mccl-setup-";

}  // namespace mccl::cluster
