// The symbols of a shared library that was loaded at run time.
#pragma once

#include <string>
#include <string_view>

namespace mccl::mpi {

/// The library stays loaded for as long as the process lives: MPI leaves threads and handlers
/// behind.
class Symbols {
 public:
  /// Throws InvalidArgument with what the loader says.
  static Symbols load(const std::string& path);
  /// The library of this file name when the process has it already.
  static bool is_loaded(const std::string& path);

  /// Throws InvalidArgument, naming library and function, when it has none.
  template <typename F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(required(name));
  }
  void* required(const char* name) const;
  /// Of a variable: where the process has it, which for one that the program itself names may be a
  /// place of the program's, not of the library's.
  void* variable(const char* name) const;
  bool has(const char* name) const;

  /// The file itself, as the loader found it.
  const std::string& path() const { return path_; }

 private:
  Symbols(void* library, std::string path) : library_(library), path_(std::move(path)) {}

  void* library_;
  std::string path_;
};

/// "Open MPI 4.1.4" of "Open MPI v4.1.4, package: …", "MPICH 4.0.2" of "MPICH Version:\t4.0.2\n…".
std::string short_version(std::string_view text);

}  // namespace mccl::mpi
