// Backends of MLX for which the launcher can prepare ranks.
#pragma once

namespace mccl::cli::launch {

/// `any` leaves the choice to the launcher.
enum class Backend { any, ring, jaccl, jaccl_ring, nccl, mpi };
inline constexpr int kBackendCount = 6;
const char* name_of(Backend backend);

}  // namespace mccl::cli::launch
