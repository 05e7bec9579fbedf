#include "base/environment.h"

#include <string_view>

#ifdef __APPLE__
#include <crt_externs.h>
#else
extern char** environ;
#endif

namespace mccl {

std::map<std::string, std::string> process_environment() {
#ifdef __APPLE__
  char** entries = *_NSGetEnviron();
#else
  char** entries = environ;
#endif
  std::map<std::string, std::string> result;
  for (char** entry = entries; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

}  // namespace mccl
