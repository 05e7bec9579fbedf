// Lists of hosts in Slurm's notation: "desk[01-03,7],big".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mccl {

/// Returns the hosts in order. Throws InvalidArgument if the text is not such a list, or has more
/// than `most` hosts.
std::vector<std::string> expand_node_list(std::string_view text, std::size_t most = 65536);

}  // namespace mccl
