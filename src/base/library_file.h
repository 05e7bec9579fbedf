// The file of a library that was loaded at run time.
#pragma once

#include <string>

namespace mccl {

/// Where the library lies that dlopen gave, as the dynamic linker found it. Where the system does
/// not tell, as on macOS: `asked`, the name that dlopen was given.
std::string library_file(void* library, const std::string& asked);

}  // namespace mccl
