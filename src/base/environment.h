#pragma once

#include <map>
#include <string>
#include <vector>

namespace mccl {

/// The variables of this process.
std::map<std::string, std::string> process_environment();

/// Where a small file finds room that only processes of this machine should see, best first:
/// folders in memory, then the one for temporary files.
std::vector<std::string> private_folders();
std::vector<std::string> private_folders(const std::map<std::string, std::string>& environment);

}  // namespace mccl
