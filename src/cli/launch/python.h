// Finds the path of this program, and the Python that belongs to it.
#pragma once

#include <filesystem>
#include <string>

namespace mccl::cli::launch {

/// Returns the path of this program. Empty if the system does not provide it.
std::filesystem::path this_program();

/// Returns the Python that runs .py files: the one beside this program, as in a virtual
/// environment, or else the first python3 or python on `path`. Empty if there is none.
std::string find_python(const std::string& path);

/// True if this Python has a build of MLX for CUDA, and this machine has a GPU for it. Only checks
/// which files exist, because importing MLX would take longer than starting a job. `devices` is the
/// system's folder of devices.
bool runs_mlx_on_cuda(const std::string& python, const std::string& devices = "/dev");

}  // namespace mccl::cli::launch
