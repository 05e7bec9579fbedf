// The facts known about one host.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/finding.h"
#include "cluster/network.h"

namespace mccl::cluster {

enum class System { unknown, gnu_linux, macos };

std::string_view name_of(System system);

enum class InterfaceKind { cable, thunderbolt, wireless, software, loopback };

std::string_view name_of(InterfaceKind medium);

struct Interface {
  std::string name;
  InterfaceKind kind = InterfaceKind::cable;
  bool up = false;
  /// True if the interface detects the other end of its cable; absent if the system does not report
  /// a carrier.
  std::optional<bool> carrier;
  int mbit_per_s = 0;  ///< 0 if unknown.
  int mtu = 0;         ///< In bytes; 0 if unknown.
  std::string mac;
  /// IPv4 addresses, then IPv6 addresses that are neither temporary nor link-local.
  std::vector<Network> addresses;
  std::vector<std::string> link_local;  ///< IPv6 link-local addresses.
  std::string bridge;                   ///< Bridge that contains the interface, if any.
  bool joins = false;                   ///< True for a bridge or a tunnel, which has no cable.
  std::string rdma;                     ///< The interface's RDMA device, if any.
  /// Value of Linux's rp_filter setting. If it is 1, Linux drops a packet if a reply to it would
  /// leave through a different interface from the one on which the packet arrived.
  int rp_filter = 0;

  bool usable() const { return up && carrier.value_or(true); }
  /// True if the interface may have a cable (or wireless link) of its own: false for loopback,
  /// bridges and tunnels. Bridges of containers have the same addresses on every host.
  bool is_of_a_cable() const { return !joins && kind != InterfaceKind::loopback; }
  bool may_join_hosts() const { return usable() && is_of_a_cable(); }
  std::vector<Network> ipv4() const;
  bool has_ipv4() const { return !ipv4().empty(); }
  /// True if one of the interface's addresses is `text`, in any spelling.
  bool has_address(const std::string& text) const;
};

struct Route {
  Network to;
  std::string interface;  ///< Outgoing interface; empty if unknown.
};

/// An address or a network that the host uses. The networks that MCCL assigns to cables must not
/// overlap it.
struct InUse {
  Network network;
  std::string by;  ///< Completes "ADDRESS is … of HOST", such as "a DNS server".
};

/// A Thunderbolt port, and the computer at the far end of its cable.
struct ThunderboltPort {
  std::string receptacle;
  std::string interface;
  std::string own;      ///< The UUID of this port or, on Linux, of this host.
  std::string peer_id;  ///< The `own` UUID of the other end; empty if no computer is connected.
  std::string peer;     ///< The name of the computer at the other end.
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

/// A limit of the system; kNoLimit if unlimited, absent if unknown.
using Limit = std::optional<long>;
inline constexpr long kNoLimit = -1;

/// Facts about one host. The defaults describe a host about which nothing is known yet.
struct HostFacts {
  std::string host;  ///< Displayed name of the host.
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
  int ranks = 0;  ///< Number of ranks that run on the host, as far as the user may see them.
  bool is_root = false;
  bool has_sudo = false;  ///< True if sudo needs no password.
  Limit open_files;       ///< Soft limit of open files of a process.
  Limit most_open_files;  ///< Hard limit of open files of a process.
  Limit locked_kib;       ///< Limit of a process's locked memory, in KiB.
  Limit shared_kib;       ///< Free space in /dev/shm, in KiB.
  bool shared_writable = true;
  std::string mccl;  ///< Path of the program mccl; empty if not installed.
  /// The host's address to which ssh connected; empty for the local machine.
  std::string asked_at;
  std::map<std::string, std::string> versions;
  std::map<std::string, std::string> settings;  ///< Environment variables named MCCL_*.
  std::vector<Interface> interfaces;
  std::vector<Route> routes;  ///< IPv4 routes except the default route.
  std::vector<InUse> in_use;  ///< Private ones, such as those of DNS servers and neighbours.
  /// The program that configures interface addresses when the host starts: "netplan",
  /// "NetworkManager", "systemd-networkd" or "networksetup". Empty if none of these does.
  std::string network_manager;
  bool setup_unconfirmed = false;  ///< True while a guard process may undo a set-up.
  std::vector<ThunderboltPort> ports;
  std::vector<RdmaDevice> rdma;
  std::string rdma_control;  ///< Output of macOS's rdma_ctl.
  std::vector<Gpu> gpus;
  std::string gpu_links;  ///< Output of nvidia-smi topo -m.
  std::string gpu_peers;  ///< Output of nvidia-smi topo -p2p r.
  /// The host's clock offset from this machine, in seconds. Positive if the host is ahead. The
  /// magnitude is a lower bound.
  double clock_off_s = 0;
  Findings odd;  ///< Findings about facts that could not be gathered or parsed.

  /// Returns the interface with this name; null if there is none.
  const Interface* interface(std::string_view name) const;
  Interface* interface(std::string_view name);
  /// Returns the interface that has the address, in any spelling; null if there is none.
  const Interface* interface_with(const std::string& address) const;
  /// Splits a comma-separated setting into its items; none if `variable` is not set.
  std::vector<std::string> items_of(const std::string& variable) const;
};

using Hosts = std::span<const HostFacts>;

/// Returns the hosts' names, separated by commas.
std::string names_of(Hosts hosts);

/// Prefix of the names of folders in /tmp, each of which belongs to a set-up that is not confirmed
/// yet. The guard process of the set-up touches the file `waits` in the folder every second.
inline constexpr const char* kGuardPrefix = "mccl-setup-";

}  // namespace mccl::cluster
