// Splits text into lines, words and parts, and lays out text for people.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mccl::cluster {

/// Splits at "\n" and "\r\n", which are removed. Empty lines are left out.
std::vector<std::string_view> lines_of(std::string_view text);
/// Splits at each separator. The parts may be empty.
std::vector<std::string_view> split(std::string_view text, char separator);
/// Splits at blanks and tabs.
std::vector<std::string_view> words_of(std::string_view line);

using TableRows = std::vector<std::vector<std::string>>;

/// Formats a table whose first row holds the column names. Columns that contain only numbers, with
/// or without units, are right-aligned. Lines have no trailing blanks.
std::string table_text(const TableRows& rows);

/// Formats a rate in Mbit/s, such as "40 Gbit/s" or "866 Mbit/s"; "?" for 0.
std::string rate_text(double mbit);

}  // namespace mccl::cluster
