#include "cli/launch/python.h"

#include <initializer_list>

#include "cli/launch/process.h"
#include "cli/launch/this_program.h"

namespace mccl::cli::launch {

std::string find_python(const std::string& path) {
  const std::string beside = this_program().parent_path().string();
  for (const std::string& folders : {beside, path}) {
    for (const char* name : {"python3", "python"}) {
      std::string found = find_program(name, folders, "");
      if (!found.empty()) return found;
    }
  }
  return {};
}

}  // namespace mccl::cli::launch
