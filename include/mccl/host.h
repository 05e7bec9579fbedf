// What this machine has, and a line in the log of this process.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mccl/config.h"
#include "mccl/export.h"

namespace mccl {

/// Whether an RDMA device of this machine has an active port, of the number Config::rdma_port.
MCCL_API bool has_active_rdma(const Config& config);

/// Whether an MPI library can be loaded that suits what has started a process with these variables.
MCCL_API bool has_mpi(const std::map<std::string, std::string>& environment);

/// The addresses of this machine's interfaces that are up, loopback's last.
MCCL_API std::vector<std::string> own_addresses();

/// Reads a table of RDMA devices, as MLX_IBV_DEVICES names one, and returns the number of its
/// ranks. It must join all ranks, or each to the next; with `ring`, each to the next. Throws
/// InvalidArgument with a picture of what is missing.
MCCL_API int check_device_table(const std::string& path, bool ring);

/// Writes `text` to standard error line by line, at level INFO, as the library's own lines of
/// `rank` are written. `level` is the least level that is shown, such as Config::log_level. Throws
/// InvalidArgument for a level that is none.
MCCL_API void log_info(int rank, std::string_view text, std::string_view level = "INFO");

}  // namespace mccl
