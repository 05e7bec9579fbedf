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

/// A hash of this process's variables that begin with one of `prefixes`, none of which may be
/// empty. Changes, except for a collision, when such a variable is added, removed or changed. Costs
/// less than reading them.
std::uint64_t environment_fingerprint(std::span<const std::string_view> prefixes);

/// Folders for a small file that only processes of this machine should see, best first: folders in
/// memory, then the folder for temporary files.
std::vector<std::string> private_folders();
std::vector<std::string> private_folders(const std::map<std::string, std::string>& environment);

}  // namespace mccl
