#include "backend/mpi/symbols.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/library_file.h"
#include "mccl/error.h"

namespace mccl::mpi {

/// Uses RTLD_GLOBAL, because the plugins that an MPI library loads look up its symbols globally.
Symbols Symbols::load(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) throw InvalidArgument(::dlerror());
  return {library, library_file(library, path)};
}

bool Symbols::is_loaded(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library) ::dlclose(library);  // releases only the reference that dlopen() has just added
  return library != nullptr;
}

void* Symbols::required(const char* name) const {
  if (void* found = ::dlsym(library_, name)) return found;
  throw InvalidArgument(
      fmt::format("{} lacks {}, which MCCL needs: it is not an MPI library, or it is older than "
                  "MPI 3.0; name another with MPI_LIBNAME",
                  path_, name));
}

void* Symbols::variable(const char* name) const {
  void* found = ::dlsym(RTLD_DEFAULT, name);
  return found ? found : required(name);
}

bool Symbols::has(const char* name) const { return ::dlsym(library_, name) != nullptr; }

std::string short_version(std::string_view text) {
  std::string line(text.substr(0, text.find_first_of(",\n")));
  for (const std::string_view noise : {"Version:", "Library", "(R)"}) {
    if (const auto found = line.find(noise); found != line.npos) line.erase(found, noise.size());
  }
  std::replace(line.begin(), line.end(), '\t', ' ');
  if (const auto v = line.find(" v"); v != line.npos && std::isdigit(line[v + 2])) {
    line.erase(v + 1, 1);
  }
  line.erase(
      std::unique(line.begin(), line.end(), [](char a, char b) { return a == ' ' && b == ' '; }),
      line.end());
  while (line.ends_with(' ') || line.ends_with('\0')) line.pop_back();
  return line;
}

}  // namespace mccl::mpi
