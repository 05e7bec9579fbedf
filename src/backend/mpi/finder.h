// Decides which MPI library a process uses, and loads it. Only find_library() loads libraries; the
// other functions depend on their arguments alone.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/mpi/library.h"

namespace mccl::mpi {

/// The launcher that started this process.
struct Launcher {
  enum class Kind { none, open_mpi, hydra, srun };
  Kind kind = Kind::none;
  std::string name;  ///< Name used in messages, such as "Open MPI's mpirun".
  int ranks = 0;     ///< Number of ranks that the launcher started; 0 if unknown.
  /// False if srun was started without a suitable --mpi option. Each rank would then be an MPI job
  /// of its own.
  bool starts_mpi = true;
};

Launcher launcher_of(const std::map<std::string, std::string>& environment);

struct LibrarySearch {
  std::vector<std::string> names;  ///< Libraries to try, in this order.
  /// Environment variable that names the library; empty if no variable does.
  std::string named_by;
};

/// Returns the library that MPI_LIBNAME or MLX_MPI_LIBNAME names. If neither is set, returns the
/// libraries that the process has `loaded`. If the process has loaded none, returns all known names
/// of MPI libraries, with the names that suit the launcher first.
LibrarySearch wanted_of(const std::map<std::string, std::string>& environment,
                        const Launcher& launcher, const std::vector<std::string>& loaded);

/// Throws InvalidArgument if the launcher cannot start ranks that use this library. The message
/// names the launcher and the library.
void check_launcher(const Identity& identity, const Launcher& launcher, std::string_view named_by);

/// Chooses and loads the library. Throws InvalidArgument if none can be loaded, if its ABI is
/// unknown, or if it conflicts with the launcher or with an MPI that the process has loaded.
std::unique_ptr<MpiLibrary> find_library(const std::map<std::string, std::string>& environment);

}  // namespace mccl::mpi
