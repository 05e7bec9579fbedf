// Functions that report facts about this machine, and one that writes to the log of this process.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mccl/config.h"
#include "mccl/export.h"

namespace mccl {

/// True if an RDMA device of this machine has an active port with the number Config::rdma_port.
MCCL_API bool has_active_rdma(const Config& config);

/// True if this process can load an MPI library that matches the launcher which set the variables
/// in `environment`.
MCCL_API bool has_mpi(const std::map<std::string, std::string>& environment);

/// Addresses of this machine's network interfaces that are up; loopback addresses come last.
MCCL_API std::vector<std::string> own_addresses();

/// Reads a table of RDMA devices, in the format of the file named by MLX_IBV_DEVICES, and returns
/// its number of ranks. The table must connect the ranks as a ring, or, if `ring` is false, as a
/// ring or a full mesh. Otherwise throws InvalidArgument; the message shows the table, with missing
/// devices marked.
MCCL_API int check_device_table(const std::string& path, bool ring);

/// Logs each line of `text` at level INFO, in the format in which the library logs for `rank`.
/// Throws InvalidArgument for an unknown level in `options`.
MCCL_API void log_info(int rank, std::string_view text,
                       const LogOptions& options = {.level = "INFO"});

}  // namespace mccl
