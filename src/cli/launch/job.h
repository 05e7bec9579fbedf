// Plans a job: the number of its ranks, and the program, host and environment of each rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/launch/hostfile.h"

namespace mccl::cli::launch {

using Variables = std::map<std::string, std::string>;

struct JobRequest {
  std::vector<std::string> program;  ///< The program and its arguments.
  std::vector<Host> hosts;
  std::optional<int> ranks_per_host;  ///< Unset: Host::slots, or 1 if that is unset.
  Variables environment;              ///< Environment variables of all ranks.
  std::string directory;              ///< Directory of ranks whose host has no Host::directory.
  std::string python;                 ///< Python of ranks whose host has no Host::python.
  Backend backend = Backend::any;
  int connections_per_address = 1;
  int nccl_port = 12345;
  bool verbose = false;  ///< True if the launcher, MLX's ring and NCCL log what they do.
};

/// TCP ports of a job: `root` and `master` on the host of rank 0, `ring` on all hosts.
struct Ports {
  std::uint16_t root = 0;    ///< Port in MCCL_ROOT.
  std::uint16_t master = 0;  ///< Value of MASTER_PORT.
  /// Ports of MLX's ring: one for each address and connection of each rank, in order.
  std::vector<std::uint16_t> ring;
};

/// Facts about a host, known once it has been reached.
struct ReachedHost {
  std::string address;  ///< Address at which the other hosts reach this host.
  std::string folder;   ///< Folder of the job's files on this host.
  /// The launcher's address as seen by this host; empty if the host is the launcher's machine.
  std::string launcher = {};
  /// Ports of this host that have a TCP listener, read from /proc/net/tcp and tcp6. Empty if the
  /// host is the launcher's machine or has no such files.
  std::set<std::uint16_t> taken = {};
  /// Address and port of torch's store for the ranks on this host. Empty: rank 0's address and
  /// Ports::master.
  std::string store = {};
  std::uint16_t store_port = 0;
};

struct RankPlan {
  int rank = 0;
  std::size_t host = 0;   ///< Index into Job::hosts.
  std::size_t entry = 0;  ///< Index into JobRequest::hosts.
  int local_rank = 0;
  std::vector<std::string> argv;
  std::string directory;
};

struct Job {
  JobRequest request;
  std::vector<Host> hosts;      ///< The distinct machines, in the order of the request.
  std::vector<RankPlan> ranks;  ///< Indexed by rank.
  std::string key;              ///< Secret key of this job.
  int restarts = 0;             ///< Number of earlier starts of the same job.

  int size() const { return static_cast<int>(ranks.size()); }
  const Host& entry_of(const RankPlan& rank) const { return request.hosts[rank.entry]; }
  std::vector<const RankPlan*> ranks_on(std::size_t host) const;
  bool all_here() const;
};

/// True if the program runs under the Python of the host or the request: its name ends in .py, or
/// is "python" or "python3", or it begins with a flag of Python's (-m MODULE).
bool runs_under_python(const JobRequest& request);

/// Numbers the ranks in the order of the request's hosts. Throws InvalidArgument for more than
/// kMostRanks ranks.
Job plan_job(const JobRequest& request, std::string key);

/// Returns the job key of the launcher's environment, so that processes outside the job can share
/// the key; a new key if there is none, or if a rank of another job started this launcher. From
/// then on, the system writes no core dumps of this process.
std::string key_of(const Variables& inherited);

/// The script that Python runs in this rank. Null if the rank runs no script.
const std::string* script_of(const RankPlan& rank);

/// True if a host may be unable to reach another host: a host for which the hostfile lists
/// addresses may be reachable only at those.
bool may_be_sparse(const Job& job);

/// The contents of files that ranks read: MLX's list of addresses, and MLX's table of RDMA devices,
/// which is empty if the hosts have none.
std::string ring_file(const Job& job, const Ports& ports, const std::vector<ReachedHost>& reached);
std::string devices_file(const Job& job);

/// Variable with the number of earlier starts of a rank, or of all ranks if they start together.
inline constexpr const char* kRestartCount = "TORCHELASTIC_RESTART_COUNT";

/// The name and the contents of a file in the job's folder.
using NamedText = std::pair<std::string, std::string>;
inline constexpr const char* kRingFile = "hostfile.json";
inline constexpr const char* kDevicesFile = "devices.json";

/// Variable of every process of the job: the job's folder and a slash. It identifies processes that
/// have left the process group of their rank.
inline constexpr const char* kMark = "_MCCL_LAUNCH";

/// File in the job's folder. A program creates it when it imports MLX while MCCL_MLX is set.
inline constexpr const char* kOnMccl = "on-mccl";

/// True if MLX reads its rank, or how to reach the other ranks, from this variable. A launcher that
/// is itself a rank of an MLX job must not pass it on.
bool sets_mlx_rank(std::string_view name);

/// True if the launcher sets this variable for each rank, because it holds the rank's identity or
/// (except with Backend::mpi) the address at which ranks meet.
bool is_set_per_rank(std::string_view name, Backend backend);

/// Returns the launcher's variables that every rank gets on every host: the settings of MCCL, MLX
/// and NCCL, without those for which sets_mlx_rank() is true, and without those that refer to files
/// of an outer job.
Variables forwarded(const Variables& inherited);

/// Returns the variables that give a rank its identity and the addresses of the other ranks: for
/// MCCL, for torch, and for the requested backend of MLX. Includes forwarded(). Variables of the
/// request override all these, and variables of the host's entry override those of the request.
Variables environment_of(const Job& job, const RankPlan& rank, const Ports& ports,
                         const std::vector<ReachedHost>& reached, const Variables& inherited);

/// Returns the host and the variables of each rank, for --print-env, with `commands` also its
/// command line, for --dry-run. Secrets are masked.
std::string text_of(const Job& job, const Ports& ports, const std::vector<ReachedHost>& places,
                    const Variables& inherited, bool commands);

/// Returns one line per variable. Secrets are masked.
std::string text_of(const Variables& variables);

}  // namespace mccl::cli::launch
