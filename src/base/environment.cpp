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

std::vector<std::string> private_folders() { return private_folders(process_environment()); }

std::vector<std::string> private_folders(const std::map<std::string, std::string>& environment) {
  const auto folder = [&](const char* variable, const char* otherwise) {
    const auto found = environment.find(variable);
    const bool usable = found != environment.end() && found->second.starts_with('/');
    return std::string(usable ? found->second : otherwise);
  };
  std::vector<std::string> folders = {folder("XDG_RUNTIME_DIR", ""), "/dev/shm",
                                      folder("TMPDIR", "/tmp")};
  std::erase(folders, "");
  return folders;
}

}  // namespace mccl
