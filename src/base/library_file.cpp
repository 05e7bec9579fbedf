#include "base/library_file.h"

#include <dlfcn.h>

#if __has_include(<link.h>)
#include <link.h>
#endif

namespace mccl {

std::string library_file([[maybe_unused]] void* library, const std::string& asked) {
#if __has_include(<link.h>)
  link_map* map = nullptr;
  if (::dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name)
    return map->l_name;
#endif
  return asked;
}

}  // namespace mccl
