// Replaces the contents of a file atomically.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

namespace mccl {

/// Replaces the file, or creates it: a reader finds either the whole old text or the whole new one.
/// The new file has the permissions `mode`. Calls `before`, if given, when the new text is complete
/// and the old file is still there. On failure, throws Error and leaves the old file unchanged; the
/// message contains the path. If `before` throws, the old file also stays unchanged.
void replace_file(const std::string& path, std::string_view text, mode_t mode,
                  const std::function<void()>& before = {});

}  // namespace mccl
