// Finds programs: those in PATH, this program, and the Python that belongs to it.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace mccl::cli {

/// Returns the PATH of the environment, or `usual` if it has none.
std::string path_of(const std::map<std::string, std::string>& environment,
                    const std::string& usual = {});

/// Returns the path of `program`, or an empty string if there is no such executable. A name with a
/// slash is relative to `directory`, and is returned unchanged. Any other name is searched for in
/// the folders of `path`.
std::string find_program(const std::string& program, const std::string& path,
                         const std::string& directory = {});

/// Returns the path of this program. Empty if the system does not provide it.
std::filesystem::path this_program();

/// Returns the Python that runs .py files: the one beside this program, as in a virtual
/// environment, or else the first python3 or python on `path`. Empty if there is none.
std::string find_python(const std::string& path);

/// True if this Python has a build of MLX for CUDA, and this machine has a GPU for it. Only checks
/// which files exist, because importing MLX would take longer than starting a job. `devices` is the
/// system's folder of devices.
bool runs_mlx_on_cuda(const std::string& python, const std::string& devices = "/dev");

}  // namespace mccl::cli
