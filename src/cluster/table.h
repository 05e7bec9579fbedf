// Tables that line up.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mccl::cluster {

/// The first row names the columns. A column of numbers alone, with or without units, is set
/// against its right edge. Nothing follows the last word of a line.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

/// "40 Gbit/s", "866 Mbit/s"; "?" for 0.
std::string rate_text(double mbit);

}  // namespace mccl::cluster
