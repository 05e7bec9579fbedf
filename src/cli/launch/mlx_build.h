// Which MLX a Python has.
#pragma once

#include <string>

namespace mccl::cli::launch {

/// Whether the packages beside this Python are those of an MLX that was built for CUDA, and this
/// machine has a GPU for it. Looks at files only: to import MLX would take longer than to start a
/// job. `devices` is where the system lists its devices.
bool runs_mlx_on_cuda(const std::string& python, const std::string& devices = "/dev");

}  // namespace mccl::cli::launch
