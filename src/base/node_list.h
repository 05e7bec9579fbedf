// Lists of hosts as Slurm writes them: "desk[01-03,7],big".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mccl {

/// In order. Throws InvalidArgument for text that is no such list, or more than `most` hosts.
std::vector<std::string> expand_node_list(std::string_view text, std::size_t most = 65536);

}  // namespace mccl
