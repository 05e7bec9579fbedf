#include "base/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#if __has_include(<link.h>)
#include <link.h>
#endif

namespace mccl {
namespace {

std::string file_of([[maybe_unused]] void* library, const std::string& name) {
#if __has_include(<link.h>)
  link_map* map = nullptr;
  if (::dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name)
    return map->l_name;
#endif
  return name;
}

}  // namespace

SharedLibrary::SharedLibrary(std::initializer_list<std::string> names, Symbols symbols) {
  const int scope = symbols == Symbols::global ? RTLD_GLOBAL : RTLD_LOCAL;
  std::string failure;
  for (const std::string& name : names) {
    handle_ = ::dlopen(name.c_str(), RTLD_NOW | scope);
    if (!handle_) {
      failure = ::dlerror();
      continue;
    }
    path_ = file_of(handle_, name);
    return;
  }
  throw LoadError(failure);
}

bool SharedLibrary::is_loaded(const std::string& name) {
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library) ::dlclose(library);  // releases only the reference that dlopen() has just added
  return library != nullptr;
}

void* SharedLibrary::find(const char* symbol) const { return ::dlsym(handle_, symbol); }

void* SharedLibrary::require(const char* symbol) const {
  if (void* const found = find(symbol)) return found;
  throw LoadError(fmt::format("{} lacks the symbol {}", path_, symbol), symbol);
}

void* SharedLibrary::variable(const char* symbol) const {
  void* const found = ::dlsym(RTLD_DEFAULT, symbol);
  return found ? found : require(symbol);
}

}  // namespace mccl
