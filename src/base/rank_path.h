// Names of files that each rank writes.
#pragma once

#include <string>
#include <string_view>

namespace mccl {

/// Returns the path of a rank's own file. In `setting`, %r, %h and %p stand for the rank, the host
/// and the process ID, and %% for a percent sign. Without %r, the rank is appended. If the setting
/// names a folder, the file in it is called mccl-HOST-RANK and ends with `extension`.
std::string path_of_rank(std::string_view setting, int rank, std::string_view host,
                         std::string_view extension);

/// Host name, reduced to printable characters; "unknown" if gethostname fails.
std::string host_name();

}  // namespace mccl
