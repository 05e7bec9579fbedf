// Which ranks a job has, what each runs, where, and what its environment tells it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/backend.h"
#include "cli/launch/host.h"

namespace mccl::cli::launch {

using Variables = std::map<std::string, std::string>;

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
  bool verbose = false;  ///< Of what the ranks use too.
};

/// TCP ports on the host of rank 0, and of MLX's ring on all.
struct Ports {
  std::uint16_t root = 0;    ///< MCCL_ROOT
  std::uint16_t master = 0;  ///< MASTER_PORT
  /// MLX's ring: one for each address and connection of each rank, in order.
  std::vector<std::uint16_t> ring;
};

/// Where ranks find torch's store.
struct StorePlace {
  std::string address;  ///< Empty: where the ranks meet.
  std::uint16_t port = 0;
};

/// What is known of a host once it has been reached.
struct Reached {
  std::string address;  ///< By which the others reach it.
  std::string folder;   ///< Where the files of this job are.
  std::string launcher =
      {};  ///< The launcher's address as that host sees it; empty for this machine.
  /// Ports that something listens at there, as far as the host tells.
  std::set<std::uint16_t> taken = {};
  StorePlace store = {};  ///< For its ranks.
};

struct Rank {
  int rank = 0;
  std::size_t host = 0;   ///< Index of Job::hosts.
  std::size_t entry = 0;  ///< Index of Request::hosts, which says how it runs there.
  int local_rank = 0;
  std::vector<std::string> argv;
  std::string directory;
};

struct Job {
  Request request;
  std::vector<Host> hosts;  ///< The machines: as asked, those that are named twice once.
  std::vector<Rank> ranks;  ///< In order.
  std::string key;          ///< Secret of this job.

  int size() const { return static_cast<int>(ranks.size()); }
  const Host& entry_of(const Rank& rank) const { return request.hosts[rank.entry]; }
  int ranks_on(std::size_t host) const;
  bool all_here() const;
};

/// Whether the Python of the request, or of the host, is what runs it: a program whose name ends in
/// .py or is that of Python itself, and one that begins with a flag of Python's (-m MODULE).
bool runs_under_python(const Request& request);

/// Ranks follow the order of hosts, those of a host together. Throws InvalidArgument for more ranks
/// than a job can have.
Job plan_job(const Request& request, std::string key);

/// The script that Python runs in this rank; null when it runs none.
const std::string* script_of(const Rank& rank);

/// Whether hosts may not all reach each other: where addresses are given, there may be no others.
bool may_be_sparse(const Job& job);

/// "address:port", an IPv6 address in brackets.
std::string with_port(const std::string& address, int port);

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

/// By this variable, whose value is the job's folder and a slash, processes are known for the job's
/// that have left the process group of their rank.
inline constexpr const char* kMark = "_MCCL_LAUNCH";

/// The file in the job's folder that a program leaves which imports MLX while MCCL_MLX is set.
inline constexpr const char* kOnMccl = "on-mccl";

/// Whether a variable of this name tells a process its place in a job of MLX's: a launcher that is
/// told a place of its own must not pass that on.
bool tells_mlx_a_place(std::string_view name);

/// Whether every rank is told by this variable who it is, or where ranks meet, so that one value
/// for all would break the job. mpirun tells its ranks who they are, and is told where they meet.
bool is_told_each_rank(std::string_view name, Backend backend);

/// Of the launcher's environment, what every rank gets wherever it runs, since all must agree on
/// it: the settings of MCCL, MLX and NCCL. Not the files of a job that the launcher itself is of.
Variables forwarded(const Variables& inherited);

/// What tells a rank who it is and where the others are: to MCCL, to torch, and to the one backend
/// of MLX that is asked for. Whatever the request or the host sets comes with it, and what is
/// forwarded.
Variables environment_of(const Job& job, const Rank& rank, const Ports& ports,
                         const std::vector<Reached>& reached, const Variables& inherited);

}  // namespace mccl::cli::launch
