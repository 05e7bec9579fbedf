#pragma once

#include <string>

namespace mccl::cli::launch {

/// The Python that .py files run under: the one beside this program, as in a virtual environment,
/// else the first python3 or python on `path`. Empty when there is none.
std::string find_python(const std::string& path);

}  // namespace mccl::cli::launch
