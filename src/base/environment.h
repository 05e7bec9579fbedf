#pragma once

#include <map>
#include <string>

namespace mccl {

/// The variables of this process.
std::map<std::string, std::string> process_environment();

}  // namespace mccl
