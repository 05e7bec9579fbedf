// Which ranks a job has, what each runs, where, and what its environment tells it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch/host.h"

namespace mccl::cli::launch {

using Variables = std::map<std::string, std::string>;

enum class Backend { any, ring, jaccl, jaccl_ring, nccl, mpi };
inline constexpr int kBackendCount = 6;
const char* name_of(Backend backend);

/// What is asked for.
struct Request {
  std::vector<std::string> program;  ///< With its arguments.
  std::vector<Host> hosts;
  std::optional<int> ranks_per_host;  ///< Instead of what hosts say; 1 for those that say nothing.
  Variables environment;              ///< For all ranks.
  std::string directory;              ///< Where hosts name none.
  std::string python;                 ///< Where hosts name none.
  Backend backend = Backend::any;
  int connections_per_address = 1;
  int nccl_port = 12345;
};

/// TCP ports on the host of rank 0, and of MLX's ring on all.
struct Ports {
  std::uint16_t root = 0;    ///< MCCL_ROOT
  std::uint16_t master = 0;  ///< MASTER_PORT
  /// MLX's ring: one for each address and connection of each rank, in order.
  std::vector<std::uint16_t> ring;
};

/// What is known of a host once it has been reached.
struct Reached {
  std::string address;  ///< By which the others reach it.
  std::string folder;   ///< Where the files of this job are.
  std::string launcher = {};  ///< The launcher's address as that host sees it; empty for this machine.
};

struct Rank {
  int rank = 0;
  std::size_t host = 0;  ///< Index of Job::hosts.
  int local_rank = 0;
  std::vector<std::string> argv;
  std::string directory;
};

struct Job {
  Request request;
  std::vector<Host> hosts;  ///< As asked, those that are named twice once.
  std::vector<Rank> ranks;  ///< In order.
  std::string key;          ///< Secret of this job.

  int size() const { return static_cast<int>(ranks.size()); }
  int ranks_on(std::size_t host) const;
  bool all_here() const;
};

/// Ranks follow the order of hosts, those of a host together. A program whose name ends in .py runs
/// under Python. Throws InvalidArgument for more ranks than a job can have.
Job plan_job(const Request& request, std::string key);

/// How many ports MLX's ring needs.
std::size_t ring_ports(const Job& job);
/// root, master and the ring's, from `first` - 2 up. Throws InvalidArgument when they do not fit.
Ports ports_from(const Job& job, int first);

/// The files that ranks read: MLX's list of addresses, and its table of devices, empty when the
/// hosts have none.
std::string ring_file(const Job& job, const Ports& ports, const std::vector<Reached>& reached);
std::string devices_file(const Job& job);

inline constexpr const char* kRingFile = "hostfile.json";
inline constexpr const char* kDevicesFile = "devices.json";

/// What tells a rank who it is and where the others are. Whatever the request or the host sets
/// comes with it; so does what `inherited`, the environment of the launcher, has set for MCCL and
/// MLX.
Variables environment_of(const Job& job, const Rank& rank, const Ports& ports,
                         const std::vector<Reached>& reached, const Variables& inherited);

}  // namespace mccl::cli::launch
