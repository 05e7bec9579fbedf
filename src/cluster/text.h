// Text cut into lines and words.
#pragma once

#include <string_view>
#include <vector>

namespace mccl::cluster {

/// Without their ends, also those of other systems; empty lines are left out.
std::vector<std::string_view> lines_of(std::string_view text);
/// Separated by blanks.
std::vector<std::string_view> words_of(std::string_view line);
std::string_view trimmed(std::string_view text);

}  // namespace mccl::cluster
