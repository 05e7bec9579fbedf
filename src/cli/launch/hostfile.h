// Describes the machines of a job: hostfiles, Slurm allocations, and RDMA devices between hosts. A
// hostfile is a JSON list of hosts, or an object that contains such a list.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/kit/host.h"

namespace mccl::cli::launch {

/// Backends of MLX for which the launcher can prepare ranks. `any` stands for nccl if this machine
/// has a GPU and an MLX for CUDA, otherwise for ring.
enum class Backend { any, ring, jaccl, jaccl_ring, nccl, mpi };
inline constexpr int kBackendCount = 6;
const char* name_of(Backend backend);

struct Hostfile {
  std::string backend;  ///< Empty if the file names no backend.
  std::map<std::string, std::string> environment;
  std::vector<Host> hosts;
  /// Unknown keys, with their positions in the file. MCCL ignores them, as MLX does.
  std::vector<std::string> unknown_keys;
};

/// `name` is the file's name in messages. Throws InvalidArgument if the text is invalid.
Hostfile parse_hostfile(std::string_view name, std::string_view text);

/// Reads and parses the file. Warns of ignored keys on standard error.
Hostfile read_hostfile(const std::string& path);

/// Returns a line that warns of ignored keys, or an empty text.
std::string warning_of(const Hostfile& file);

/// The contents of the file, for people.
std::string table_of(const Hostfile& file);

/// True if the table of devices is complete: every host has a list with an entry for each host.
bool is_whole_table(const std::vector<Host>& hosts);

/// Checks the hosts' "rdma" tables. A mesh has a device for every pair of hosts; a ring has a
/// device for each pair of neighbours. jaccl needs a mesh, and jaccl-ring needs at least a ring.
/// A table for another backend must contain a ring only if it is complete. Throws InvalidArgument
/// if the tables do not suffice, or name a device from a host to itself; the message begins with
/// `where`.
void check_rdma(std::string_view where, const std::vector<Host>& hosts, Backend backend);

/// Returns the hosts of SLURM_JOB_NODELIST, with the slots that SLURM_TASKS_PER_NODE gives. Throws
/// InvalidArgument outside a Slurm allocation, or if the two lists differ in length.
std::vector<Host> hosts_of_allocation(const std::map<std::string, std::string>& environment);

/// Expands a text such as "4(x2),3" to 4, 4, 3.
std::vector<int> expand_tasks_per_node(const std::string& text);

}  // namespace mccl::cli::launch
