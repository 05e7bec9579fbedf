#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/node_list.h"
#include "base/value_text.h"
#include "mccl/error.h"
#include "mccl/meeting.h"

namespace mccl {
namespace {

using Environment = std::map<std::string, std::string>;

constexpr int kMostRanks = 1 << 20;
constexpr int kFirstDerivedPort = 20000;
constexpr std::uint64_t kDerivedPorts = 8192;

/// Reads the variables of one launcher, and collects the names of missing variables for an error
/// message.
class Reader {
 public:
  Reader(const Environment& environment, std::string_view launcher)
      : environment_(environment), launcher_(launcher) {}

  bool has(const std::string& name) const { return environment_.contains(name); }

  std::string text(const std::string& name) {
    const auto found = environment_.find(name);
    if (found == environment_.end() || found->second.empty()) {
      missing_.push_back(name);
      return {};
    }
    found_.push_back(name);
    return found->second;
  }

  int integer(const std::string& name, int least, int most) {
    const std::string value = text(name);
    if (value.empty()) return least;
    const auto number = parse_integer(value);
    if (number && *number >= least && *number <= most) return static_cast<int>(*number);
    throw InvalidArgument(fmt::format("{}: expected an integer from {} to {}; found {}, set by {}",
                                      name, least, most, in_quotes(value), launcher_));
  }

  int integer_or(const std::string& name, int fallback) {
    return has(name) ? integer(name, 0, kMostRanks) : fallback;
  }

  bool complete() const { return missing_.empty(); }
  /// Describes an incomplete placement by the variables found and those missing. Empty if none was
  /// found or none is missing.
  std::string half() const {
    if (found_.empty() || complete()) return {};
    return fmt::format("{} ({}) without {}", fmt::join(found_, ", "), launcher_,
                       fmt::join(missing_, ", "));
  }

 private:
  const Environment& environment_;
  std::string_view launcher_;
  std::vector<std::string> found_;
  std::vector<std::string> missing_;
};

/// Information from one launcher's variables: a placement or, in `half`, the text about an
/// incomplete one.
struct LauncherFinding {
  std::optional<Placement> placement;
  std::string half;
};

/// Type of a function that reads the placement from one launcher's variables. `has_root` is true if
/// the address of rank 0 is not needed, because MCCL_ROOT is set or MPI connects the ranks.
using Ask = LauncherFinding (*)(const Environment& environment, bool has_root);

/// Returns a port that depends only on the seed, such as the name of the job. All ranks know the
/// seed, so they use the same port. The port is below the range from which systems choose ports
/// themselves.
int derived_port(std::string_view seed) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const char c : seed) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return kFirstDerivedPort + static_cast<int>((hash ^ (hash >> 32)) % kDerivedPorts);
}

LauncherFinding found_by(const Reader& reader, Placement placement, std::string_view by) {
  if (!reader.complete()) return {{}, reader.half()};
  placement.found_by = by;
  return {std::move(placement), {}};
}

/// torch serves its own store at MASTER_PORT, so MCCL's store uses another port.
LauncherFinding ask_torchrun(const Environment& environment, bool has_root) {
  Reader reader(environment, "torchrun");
  if (!reader.has("RANK") && !reader.has("WORLD_SIZE")) return {};
  Placement placement;
  placement.rank = reader.integer("RANK", 0, kMostRanks);
  placement.size = reader.integer("WORLD_SIZE", 1, kMostRanks);
  placement.local_rank = reader.integer_or("LOCAL_RANK", -1);
  if (!has_root && placement.size > 1) {
    const std::string host = reader.text("MASTER_ADDR");
    const int port = reader.integer("MASTER_PORT", 1, 65535);
    placement.root = at_port(host, derived_port(fmt::format("torchrun {} {}", host, port)));
  }
  return found_by(reader, placement, "torchrun");
}

LauncherFinding ask_open_mpi(const Environment& environment, bool has_root) {
  Reader reader(environment, "Open MPI");
  if (!reader.has("OMPI_COMM_WORLD_RANK") && !reader.has("OMPI_COMM_WORLD_SIZE")) return {};
  Placement placement;
  placement.rank = reader.integer("OMPI_COMM_WORLD_RANK", 0, kMostRanks);
  placement.size = reader.integer("OMPI_COMM_WORLD_SIZE", 1, kMostRanks);
  placement.local_rank = reader.integer("OMPI_COMM_WORLD_LOCAL_RANK", 0, kMostRanks);
  placement.one_host =
      reader.integer("OMPI_COMM_WORLD_LOCAL_SIZE", 1, kMostRanks) == placement.size;
  if (has_root || placement.size == 1 || !reader.complete())
    return found_by(reader, placement, "Open MPI");
  if (!placement.one_host) {
    throw InvalidArgument(
        "Open MPI does not give its ranks the address of rank 0 if they are on several hosts: "
        "start them with mpirun -x MCCL_ROOT=host:port, with the host of rank 0 and any free port "
        "on that host");
  }
  const bool has_name = reader.has("PMIX_NAMESPACE");
  const std::string job = reader.text(has_name ? "PMIX_NAMESPACE" : "OMPI_MCA_ess_base_jobid");
  placement.root = at_port("127.0.0.1", derived_port("Open MPI " + job));
  return found_by(reader, placement, "Open MPI");
}

/// MPI_LOCALNRANKS distinguishes hydra, the launcher of MPICH, from Slurm, which also sets PMI
/// variables.
LauncherFinding ask_mpich(const Environment& environment, bool has_root) {
  Reader reader(environment, "MPICH");
  if (!reader.has("MPI_LOCALNRANKS") || !reader.has("PMI_RANK")) return {};
  Placement placement;
  placement.rank = reader.integer("PMI_RANK", 0, kMostRanks);
  placement.size = reader.integer("PMI_SIZE", 1, kMostRanks);
  placement.local_rank = reader.integer("MPI_LOCALRANKID", 0, kMostRanks);
  placement.one_host = reader.integer("MPI_LOCALNRANKS", 1, kMostRanks) == placement.size;
  if (!has_root && placement.size > 1) placement.pmi = reader.integer("PMI_FD", 0, kMostRanks);
  return found_by(reader, placement, "MPICH");
}

/// Reads the variables of a job step, which srun starts. Finds nothing outside a step, because the
/// script of a batch job is not a rank.
LauncherFinding ask_slurm(const Environment& environment, bool has_root) {
  Reader reader(environment, "Slurm");
  if (!reader.has("SLURM_PROCID") || !reader.has("SLURM_STEP_ID")) return {};
  Placement placement;
  placement.rank = reader.integer("SLURM_PROCID", 0, kMostRanks);
  placement.size = reader.integer("SLURM_STEP_NUM_TASKS", 1, kMostRanks);
  placement.local_rank = reader.integer_or("SLURM_LOCALID", -1);
  if (has_root || placement.size == 1) return found_by(reader, placement, "Slurm");
  const std::string nodes = reader.text("SLURM_STEP_NODELIST");
  const std::string job = reader.text("SLURM_JOB_ID");
  const std::string step = reader.text("SLURM_STEP_ID");
  if (!reader.complete()) return found_by(reader, placement, "Slurm");
  const std::vector<std::string> names = expand_node_list(nodes);
  placement.one_host = names.size() == 1;
  placement.root = at_port(placement.one_host ? "127.0.0.1" : names.front(),
                           derived_port(fmt::format("Slurm {} {}", job, step)));
  return found_by(reader, placement, "Slurm");
}

/// Finds the rank from the variables that mlx.launch sets for its nccl backend. Finds nothing if
/// one of them is missing, because another backend of MLX sets MLX_RANK too.
LauncherFinding ask_mlx(const Environment& environment, bool has_root) {
  Reader reader(environment, "mlx.launch");
  for (const char* name : {"MLX_RANK", "MLX_WORLD_SIZE", "NCCL_HOST_IP", "NCCL_PORT"}) {
    if (!reader.has(name)) return {};
  }
  Placement placement;
  placement.rank = reader.integer("MLX_RANK", 0, kMostRanks);
  placement.size = reader.integer("MLX_WORLD_SIZE", 1, kMostRanks);
  if (!has_root && placement.size > 1) {
    const std::string host = reader.text("NCCL_HOST_IP");
    placement.root = at_port(host, reader.integer("NCCL_PORT", 1, 65535));
  }
  return found_by(reader, placement, "mlx.launch");
}

constexpr Ask kLaunchers[] = {ask_torchrun, ask_open_mpi, ask_mpich, ask_slurm, ask_mlx};

std::optional<Placement> ask_settings(const Config& config) {
  const bool has_rank = config.rank >= 0;
  const bool has_size = config.world_size > 0;
  if (has_rank != has_size) {
    throw InvalidArgument(fmt::format("{} is set and {} is not: set both for every process",
                                      has_rank ? "MCCL_RANK" : "MCCL_WORLD_SIZE",
                                      has_rank ? "MCCL_WORLD_SIZE" : "MCCL_RANK"));
  }
  if (!has_rank) return {};
  if (config.world_size > 1 && config.root.empty() && config.hostfile.empty() &&
      !meets_by_mpi(config)) {
    throw InvalidArgument(
        fmt::format("MCCL_ROOT is not set: the {} ranks connect through it. Set it on every rank "
                    "to host:port, with the host of rank 0 and any port that is free on that host",
                    config.world_size));
  }
  Placement placement;
  placement.rank = config.rank;
  placement.size = config.world_size;
  placement.root = config.root;
  placement.found_by = "MCCL";
  return placement;
}

/// The variables that give a rank and the number of ranks, for one value of Placement::found_by.
struct Names {
  std::string_view found_by;
  std::string_view rank;
  std::string_view size;
};

constexpr Names kNames[] = {{"MCCL", "MCCL_RANK", "MCCL_WORLD_SIZE"},
                            {"torchrun", "RANK", "WORLD_SIZE"},
                            {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                            {"MPICH", "PMI_RANK", "PMI_SIZE"},
                            {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                            {"mlx.launch", "MLX_RANK", "MLX_WORLD_SIZE"}};

Placement checked(Placement placement) {
  if (placement.rank < placement.size) return placement;
  const Names& names = *std::ranges::find(kNames, placement.found_by, &Names::found_by);
  throw InvalidArgument(fmt::format(
      "rank {}, as set by {}, is outside 0 to {}: {} is {} and {} is {}; count ranks from 0",
      placement.rank, placement.found_by, placement.size - 1, names.rank, placement.rank,
      names.size, placement.size));
}

/// Must be called only if no variable gives the rank. Throws if MCCL_ROOT is set, which shows that
/// the job has other ranks. Accepts MCCL_ROOT if MPI or MLX's own launcher is used, because they
/// provide the rank and the size.
void refuse_root_alone(const Config& config, const Environment& environment) {
  if (config.root.empty() || meets_by_mpi(config) || environment.contains("MLX_RANK")) return;
  throw InvalidArgument(
      "MCCL_ROOT is set, but neither MCCL_RANK nor MCCL_WORLD_SIZE is, and no launcher sets them: "
      "set both for every process, or unset MCCL_ROOT");
}

}  // namespace

std::optional<Placement> find_placement(const Config& config, const Environment& environment) {
  if (const auto placement = ask_settings(config)) return checked(*placement);
  std::string halves;
  for (const Ask ask : kLaunchers) {
    LauncherFinding found = ask(environment, !config.root.empty() || meets_by_mpi(config));
    if (found.placement) {
      if (!config.root.empty()) found.placement->root = config.root;
      return checked(*std::move(found.placement));
    }
    if (!found.half.empty()) halves += (halves.empty() ? "" : "; ") + found.half;
  }
  if (halves.empty()) {
    refuse_root_alone(config, environment);
    return {};
  }
  throw InvalidArgument(
      fmt::format("the launcher of this process sets only some of the variables for its rank: {}; "
                  "set the missing ones, or set MCCL_RANK, MCCL_WORLD_SIZE and MCCL_ROOT",
                  halves));
}

bool meets_by_mpi(const Config& config) { return config.backend == "mpi"; }

}  // namespace mccl
