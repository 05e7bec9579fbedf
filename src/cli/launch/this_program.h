// Where this program lies.
#pragma once

#include <filesystem>

namespace mccl::cli::launch {

/// Empty where the system does not tell.
std::filesystem::path this_program();

}  // namespace mccl::cli::launch
