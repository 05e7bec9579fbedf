// The symbols of a shared library that was loaded at run time.
#pragma once

#include <string>
#include <string_view>

namespace mccl::mpi {

/// The library is never unloaded, because MPI leaves threads and handlers behind.
class Symbols {
 public:
  /// Loads a library. Throws InvalidArgument with the loader's message.
  static Symbols load(const std::string& path);
  /// True if the process has already loaded the library of this file name.
  static bool is_loaded(const std::string& path);

  /// Returns the function of this name. Throws InvalidArgument if there is none; the message
  /// contains the names of the library and the function.
  template <typename F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(required(name));
  }
  void* required(const char* name) const;
  /// Returns the address of a variable of the library. If the program also refers to the variable,
  /// the linker may have placed it in the program. This function then returns the address in the
  /// program.
  void* variable(const char* name) const;
  bool has(const char* name) const;

  /// Path of the file that the loader found.
  const std::string& path() const { return path_; }

 private:
  Symbols(void* library, std::string path) : library_(library), path_(std::move(path)) {}

  void* library_;
  std::string path_;
};

/// Shortens "Open MPI v4.1.4, package: …" to "Open MPI 4.1.4", and "MPICH Version:\t4.0.2\n…" to
/// "MPICH 4.0.2".
std::string short_version(std::string_view text);

}  // namespace mccl::mpi
