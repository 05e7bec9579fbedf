// Text tables with aligned columns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mccl::cluster {

/// Formats a table whose first row holds the column names. Columns that contain only numbers, with
/// or without units, are right-aligned. Lines have no trailing blanks.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

/// Formats a rate in Mbit/s, such as "40 Gbit/s" or "866 Mbit/s"; "?" for 0.
std::string rate_text(double mbit);

}  // namespace mccl::cluster
