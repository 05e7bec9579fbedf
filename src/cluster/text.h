// Splits text into lines and words.
#pragma once

#include <string_view>
#include <vector>

namespace mccl::cluster {

/// Splits at "\n" and "\r\n", which are removed. Empty lines are left out.
std::vector<std::string_view> lines_of(std::string_view text);
/// Splits at blanks and tabs.
std::vector<std::string_view> words_of(std::string_view line);
/// Removes leading and trailing blanks, tabs and line ends.
std::string_view trimmed(std::string_view text);

}  // namespace mccl::cluster
