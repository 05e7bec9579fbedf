// Shared libraries that are loaded at run time, so that one build serves machines with and without
// them.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <variant>

#include "mccl/error.h"

namespace mccl {

/// Thrown if a library cannot be loaded, with the loader's message, or if it lacks a symbol.
class LoadError : public InvalidArgument {
 public:
  explicit LoadError(const std::string& message, std::string symbol = {})
      : InvalidArgument(message), symbol_(std::move(symbol)) {}
  /// The missing symbol; empty if the library itself could not be loaded.
  const std::string& symbol() const { return symbol_; }

 private:
  std::string symbol_;
};

/// A loaded library. It is never unloaded, because threads and handlers of drivers and MPI may
/// still run its code. Cheap to copy.
class SharedLibrary {
 public:
  /// `global` makes the symbols of this library visible to libraries that are loaded later.
  enum class Symbols { local, global };

  /// Loads the first of `names` that can be loaded. Throws LoadError if none can.
  explicit SharedLibrary(std::initializer_list<std::string> names,
                         Symbols symbols = Symbols::local);
  /// True if the process has already loaded the library of this file name.
  static bool is_loaded(const std::string& name);

  /// The path of the file, as the dynamic linker found it; the name that was loaded if the system
  /// does not report the path, as on macOS.
  const std::string& path() const { return path_; }

  /// Returns the address of a symbol; null if there is none.
  void* find(const char* symbol) const;
  /// Returns the address of a symbol. Throws LoadError if there is none.
  void* require(const char* symbol) const;
  /// Returns the address of a variable. If the program also refers to the variable, the linker may
  /// have placed the variable in the program. This function then returns the address in the
  /// program.
  void* variable(const char* symbol) const;

 private:
  void* handle_ = nullptr;
  std::string path_;
};

/// Returns the table of functions that the first call of `load` returned. If that call failed,
/// throws its InvalidArgument again, without another attempt.
template <auto load>
const auto& loaded_once() {
  using Table = decltype(load());
  static const auto loaded = []() -> std::variant<Table, std::string> {
    try {
      return load();
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
  }();
  if (const auto* const failure = std::get_if<std::string>(&loaded))
    throw InvalidArgument(*failure);
  return std::get<Table>(loaded);
}

/// `required`: a library that lacks the function cannot be used.
enum class Need { required, optional };

template <typename Signature>
class LibraryFunction;

/// A function of a library, found by its name. A table of functions is a struct of such members.
template <typename Result, typename... Arguments>
class LibraryFunction<Result(Arguments...)> {
 public:
  /// Throws LoadError if the library lacks a required function.
  LibraryFunction(const SharedLibrary& library, const char* name, Need need = Need::required)
      : name_(name),
        call_(reinterpret_cast<Result (*)(Arguments...)>(
            need == Need::required ? library.require(name) : library.find(name))) {}

  Result operator()(Arguments... arguments) const { return call_(arguments...); }
  /// False if the library lacks the function.
  explicit operator bool() const { return call_ != nullptr; }
  const char* name() const { return name_; }

 private:
  const char* name_;
  Result (*call_)(Arguments...);
};

}  // namespace mccl
