// Finds the file of a library that was loaded at run time.
#pragma once

#include <string>

namespace mccl {

/// The path of a library whose handle dlopen() returned, as the dynamic linker found it. Returns
/// `asked`, the name passed to dlopen(), if the system does not report the path, as on macOS.
std::string library_file(void* library, const std::string& asked);

}  // namespace mccl
