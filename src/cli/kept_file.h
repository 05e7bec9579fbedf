// A file that a person may have changed since it was written last.
#pragma once

#include <string>

namespace mccl::cli {

/// Writes the file so that whoever reads it finds the old text or the new one, whole; an old one of
/// another text is kept as PATH.bak. Where `path` is no regular file, such as /dev/stdout, it is
/// written to. Throws Error.
void write_keeping_old(const std::string& path, const std::string& text);

}  // namespace mccl::cli
