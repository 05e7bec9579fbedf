// Which MPI library a process loads: pure decisions over what is known, and the loading itself.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/mpi/library.h"

namespace mccl::mpi {

/// What started the process, as far as MPI is concerned.
struct Launcher {
  enum class Kind { none, open_mpi, hydra, srun };
  Kind kind = Kind::none;
  std::string name;  ///< For messages, such as "Open MPI's mpirun".
  int ranks = 0;     ///< That it has started; 0 when it does not tell.
  /// srun tells its ranks of MPI only where it is asked to; without, each would be alone.
  bool tells_mpi = true;
};

Launcher launcher_of(const std::map<std::string, std::string>& environment);

struct Wanted {
  std::vector<std::string> names;  ///< To be tried in this order.
  std::string named_by;            ///< The variable that names the only one; empty when none does.
};

/// What MPI_LIBNAME or MLX_MPI_LIBNAME names, or else what the process has already, or else those
/// of the system, that of the launcher first.
Wanted wanted_of(const std::map<std::string, std::string>& environment, const Launcher& launcher,
                 const std::vector<std::string>& loaded);

/// Throws InvalidArgument, naming both, for a library that the launcher does not start.
void check_launcher(const Identity& identity, const Launcher& launcher, std::string_view named_by);

/// Loads the library. Throws InvalidArgument.
std::unique_ptr<Library> find_library(const std::map<std::string, std::string>& environment);

}  // namespace mccl::mpi
