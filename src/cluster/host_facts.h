// What is known of a host.
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
  /// Its cable leads somewhere; absent where the system does not tell.
  std::optional<bool> carrier;
  int mbit_per_s = 0;  ///< 0: not known.
  int mtu = 0;         ///< 0: not known.
  std::string mac;
  std::vector<Network> addresses;
  std::vector<Network6> addresses6;     ///< That others than neighbours may have, and that last.
  std::vector<std::string> link_local;  ///< IPv6.
  std::string bridge;                   ///< That it is a member of.
  bool joins = false;                   ///< A bridge or a tunnel: no cable of its own.
  std::string rdma;                     ///< Its RDMA device.
  /// Linux's check of where packets come from; 1 drops those that would be answered elsewhere.
  int rp_filter = 0;

  bool usable() const { return up && carrier.value_or(true); }
};

struct Route {
  Network to;
  std::string interface;  ///< Empty: none, or not known.
};

/// An address that the host needs, or a network of one, which cables must not take.
struct InUse {
  Network network;
  std::string by;  ///< "a DNS server".
};

/// A socket for a Thunderbolt cable, and what its cable leads to.
struct Port {
  std::string receptacle;
  std::string interface;
  std::string own;   ///< The name (a UUID) of this end.
  std::string peer;  ///< Of the other; empty where no computer is there.
  std::string peer_name;
  int mbit_per_s = 0;
  bool through_dock = false;
};

struct RdmaDevice {
  std::string name;
  std::string interface;
  std::string state;  ///< As the system says it: "ACTIVE".
  int mbit_per_s = 0;
  std::vector<std::string> gids;
};

struct Gpu {
  std::string name;
  int memory_mib = 0;
  std::string driver;
};

/// One who knows nothing yet of a host has these.
struct HostFacts {
  std::string host;  ///< As people name it.
  System system = System::unknown;
  std::string os;
  std::string kernel;
  std::string boot;  ///< A name for the time since it was started, of its own.
  std::string processor;
  int cores = 0;
  std::string governor;
  int mhz = 0;
  int most_mhz = 0;
  double memory_gib = 0;
  double load = 0;
  int ranks = 0;  ///< Of jobs that run there, as far as the user may see them.
  bool is_root = false;
  bool has_sudo = false;  ///< Without a password.
  /// In files, and KiB. Absent where it is not known; kNoLimit where there is none.
  std::optional<long> open_files;
  std::optional<long> most_open_files;
  std::optional<long> locked_kib;
  std::optional<long> shared_kib;  ///< Of /dev/shm, free.
  bool shared_writable = true;
  std::string mccl;      ///< Where it is; empty: not there.
  std::string asked_at;  ///< Its address at which ssh reached it; empty where it was asked locally.
  std::map<std::string, std::string> versions;
  std::map<std::string, std::string> variables;  ///< Those that begin with MCCL_.
  std::vector<Interface> interfaces;
  std::vector<Route> routes;  ///< Of IPv4, without the default route.
  std::vector<InUse> in_use;  ///< Private addresses apart from its own.
  /// "netplan", "NetworkManager", "systemd-networkd" or "networksetup": the program that gives
  /// interfaces their addresses at a restart. Empty: none of these.
  std::string network_manager;
  /// A set-up was begun there that will be undone, since nobody has confirmed it.
  bool setup_unconfirmed = false;
  std::vector<Port> ports;
  std::vector<RdmaDevice> rdma;
  std::string rdma_control;  ///< What macOS's rdma_ctl says.
  std::vector<Gpu> gpus;
  std::string gpu_links;  ///< Of nvidia-smi topo -m.
  std::string gpu_peers;  ///< Of nvidia-smi topo -p2p r.
  /// How far the host's clock is from this machine's, at least; in seconds.
  double clock_off_s = 0;
  std::vector<Finding> odd;  ///< What it said that cannot be understood.

  const Interface* interface(const std::string& name) const;
  /// Of a setting that is a list: what stands between its commas; empty where it is not set.
  std::vector<std::string> items_of(const std::string& variable) const;
};

inline constexpr long kNoLimit = -1;
/// Folders in /tmp where hosts note an unconfirmed set-up: in `waits`, which changes every second.
inline constexpr const char* kGuardPrefix = "mccl-setup-";

}  // namespace mccl::cluster
