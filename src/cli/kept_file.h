// Replaces a file that the user may have changed since it was last written.
#pragma once

#include <string>

namespace mccl::cli {

/// Writes the file atomically: a reader finds either the whole old text or the whole new one. An
/// old file with another text is kept as PATH.bak. If `path` is not a regular file, such as
/// /dev/stdout, writes to it directly. Throws Error.
void write_keeping_old(const std::string& path, const std::string& text);

}  // namespace mccl::cli
