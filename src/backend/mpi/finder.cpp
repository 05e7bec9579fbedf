#include "backend/mpi/finder.h"

#include <fmt/format.h>

#include <optional>

#include "base/library.h"
#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::mpi {
namespace {

using Environment = std::map<std::string, std::string>;

#ifdef __APPLE__
const std::vector<std::string> kOfOpenMpi = {"libmpi.40.dylib", "libmpi.dylib"};
const std::vector<std::string> kOfMpich = {"libmpi.12.dylib", "libmpich.12.dylib"};
const std::vector<std::string> kOfStandard = {"libmpi_abi.1.dylib", "libmpi_abi.dylib"};
#else
const std::vector<std::string> kOfOpenMpi = {"libmpi.so.40", "libmpi.so"};
const std::vector<std::string> kOfMpich = {"libmpich.so.12", "libmpi.so.12"};
const std::vector<std::string> kOfStandard = {"libmpi_abi.so.1", "libmpi_abi.so"};
#endif

std::string value_of(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

int number_of(const Environment& environment, const char* name) {
  return static_cast<int>(parse_integer(value_of(environment, name)).value_or(0));
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_open_mpi(const Identity& identity) {
  return identity.version.starts_with("Open MPI") || identity.abi.starts_with("Open MPI");
}

/// Recognises the library's ABI by its file name, its symbols and the version that it reports.
/// Throws InvalidArgument if the ABI is unknown.
std::unique_ptr<MpiLibrary> library_of(const SharedLibrary& file) {
  if (file_name(file.path()).starts_with("libmpi_abi"))
    return std::make_unique<MpiLibrary>(file, kStandard);
  if (file.find("ompi_mpi_comm_world")) return std::make_unique<MpiLibrary>(file, kOpenMpi);
  char text[8192] = {};
  int length = 0;
  LibraryFunction<int(char*, int*)>(file, "MPI_Get_library_version")(text, &length);
  const std::string_view said(text);
  for (const std::string_view word : {"MPICH", "Intel(R) MPI", "MVAPICH", "ParaStation"}) {
    if (said.find(word) != said.npos) return std::make_unique<MpiLibrary>(file, kMpich);
  }
  throw InvalidArgument(
      fmt::format("{} identifies itself as {}, whose ABI MCCL does not support; MCCL supports the "
                  "ABIs of Open MPI, MPICH (also Intel MPI, MVAPICH) and MPI 5 (libmpi_abi)",
                  file.path(), in_quotes(said.substr(0, said.find('\n')))));
}

/// Loads the library with global symbols, because the plugins that an MPI library loads look up its
/// symbols globally.
SharedLibrary load(const std::string& name) {
  return SharedLibrary({name}, SharedLibrary::Symbols::global);
}

[[noreturn]] void refuse_without(const std::string& function, const std::string& path) {
  throw InvalidArgument(
      fmt::format("{} lacks {}, which MCCL needs: it is not an MPI library, or it is older than "
                  "MPI 3.0; set MPI_LIBNAME to another library",
                  path, function));
}

std::vector<std::string> all_names(bool mpich_first) {
  std::vector<std::string> names;
  for (const auto* each : {mpich_first ? &kOfMpich : &kOfOpenMpi, &kOfStandard,
                           mpich_first ? &kOfOpenMpi : &kOfMpich}) {
    names.insert(names.end(), each->begin(), each->end());
  }
  return names;
}

std::string advice_for(const Launcher& launcher) {
  switch (launcher.kind) {
    case Launcher::Kind::open_mpi:
      return "install Open MPI (Debian: libopenmpi3)";
    case Launcher::Kind::hydra:
      return "install MPICH (Debian: libmpich12)";
    default:
      return "install Open MPI (Debian: openmpi-bin) or MPICH (mpich)";
  }
}

}  // namespace

Launcher launcher_of(const Environment& environment) {
  if (environment.contains("OMPI_COMM_WORLD_SIZE")) {
    return {Launcher::Kind::open_mpi, "Open MPI's mpirun",
            number_of(environment, "OMPI_COMM_WORLD_SIZE")};
  }
  if (environment.contains("MPI_LOCALNRANKS") && environment.contains("PMI_SIZE")) {
    return {Launcher::Kind::hydra, "MPICH's mpirun", number_of(environment, "PMI_SIZE")};
  }
  if (environment.contains("SLURM_PROCID") && environment.contains("SLURM_STEP_ID")) {
    const bool tells = environment.contains("PMIX_RANK") || environment.contains("PMI_RANK") ||
                       environment.contains("PMI_FD");
    return {Launcher::Kind::srun, "srun", number_of(environment, "SLURM_STEP_NUM_TASKS"), tells};
  }
  return {};
}

LibrarySearch wanted_of(const Environment& environment, const Launcher& launcher,
                        const std::vector<std::string>& loaded) {
  for (const char* variable : {"MPI_LIBNAME", "MLX_MPI_LIBNAME"}) {
    const std::string name = value_of(environment, variable);
    if (!name.empty()) return {{name}, variable};
  }
  if (!loaded.empty()) return {loaded, {}};
  const bool pmi = environment.contains("PMI_RANK") || environment.contains("PMI_FD");
  const bool mpich_first =
      launcher.kind == Launcher::Kind::hydra || (launcher.kind == Launcher::Kind::srun && pmi);
  return {all_names(mpich_first), {}};
}

void check_launcher(const Identity& identity, const Launcher& launcher, std::string_view named_by) {
  if (launcher.kind == Launcher::Kind::srun && launcher.ranks > 1 && !launcher.starts_mpi) {
    throw InvalidArgument(
        fmt::format("srun has started {} ranks without MPI support: start them with srun --mpi={}, "
                    "as {} requires",
                    launcher.ranks, is_open_mpi(identity) ? "pmix" : "pmi2", identity.describe()));
  }
  const bool mismatch = (launcher.kind == Launcher::Kind::open_mpi && !is_open_mpi(identity)) ||
                        (launcher.kind == Launcher::Kind::hydra && is_open_mpi(identity));
  if (!mismatch) return;
  throw InvalidArgument(
      fmt::format("the MPI library is {}{}, but {} has started this process: start it with "
                  "the library's own mpirun, or set MPI_LIBNAME to a library that {} supports",
                  identity.describe(), named_by.empty() ? "" : fmt::format(", set by {}", named_by),
                  launcher.name, launcher.name));
}

std::unique_ptr<MpiLibrary> find_library(const Environment& environment) {
  const Launcher launcher = launcher_of(environment);
  std::vector<std::string> loaded;
  // The libraries of the standard ABI come last, because such a library may only forward calls to
  // another MPI library.
  for (const auto* names : {&kOfOpenMpi, &kOfMpich, &kOfStandard}) {
    for (const auto& name : *names) {
      if (SharedLibrary::is_loaded(name)) loaded.emplace_back(name);
    }
  }
  const LibrarySearch wanted = wanted_of(environment, launcher, loaded);
  std::string failures;
  for (const std::string& name : wanted.names) {
    std::optional<SharedLibrary> file;
    std::unique_ptr<MpiLibrary> library;
    try {
      file = load(name);
      library = library_of(*file);
    } catch (const LoadError& error) {
      if (!error.symbol().empty()) refuse_without(error.symbol(), file->path());
      failures += fmt::format("{}{}", failures.empty() ? "" : "; ", error.what());
      continue;
    }
    check_launcher(library->identity(), launcher, wanted.named_by);
    if (!loaded.empty() && !wanted.named_by.empty()) {
      const std::string present = load(loaded.front()).path();
      if (present != file->path()) {
        throw InvalidArgument(
            fmt::format("{} names {}, but this process has already loaded {}; a process can use "
                        "only one MPI library",
                        wanted.named_by, file->path(), present));
      }
    }
    return library;
  }
  if (!wanted.named_by.empty()) {
    throw InvalidArgument(
        fmt::format("cannot load the MPI library that {} names: {}", wanted.named_by, failures));
  }
  throw InvalidArgument(fmt::format("no MPI library found ({}): {}, or name one with MPI_LIBNAME",
                                    fmt::join(wanted.names, ", "), advice_for(launcher)));
}

}  // namespace mccl::mpi
