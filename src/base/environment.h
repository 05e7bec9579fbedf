#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mccl {

/// The variables of this process.
std::map<std::string, std::string> process_environment();

/// Of this process's variables that begin with one of `prefixes`, none of them empty: another
/// number, all but surely, when one of them comes, goes or changes. Costs less than reading them.
std::uint64_t environment_fingerprint(std::span<const std::string_view> prefixes);

/// Where a small file finds room that only processes of this machine should see, best first:
/// folders in memory, then the one for temporary files.
std::vector<std::string> private_folders();
std::vector<std::string> private_folders(const std::map<std::string, std::string>& environment);

}  // namespace mccl
