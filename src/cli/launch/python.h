// Where this program lies, and the Python that goes with it.
#pragma once

#include <filesystem>
#include <string>

namespace mccl::cli::launch {

/// Empty where the system does not tell.
std::filesystem::path this_program();

/// The Python that .py files run under: the one beside this program, as in a virtual environment,
/// else the first python3 or python on `path`. Empty when there is none.
std::string find_python(const std::string& path);

/// Whether the packages beside this Python are those of an MLX that was built for CUDA, and this
/// machine has a GPU for it. Looks at files only: to import MLX would take longer than to start a
/// job. `devices` is where the system lists its devices.
bool runs_mlx_on_cuda(const std::string& python, const std::string& devices = "/dev");

}  // namespace mccl::cli::launch
