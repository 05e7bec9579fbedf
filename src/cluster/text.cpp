#include "cluster/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/value_text.h"

namespace mccl::cluster {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

/// Counts UTF-8 characters rather than bytes, since host names may contain non-ASCII characters.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](unsigned char c) { return (c & 0xC0U) != 0x80; }));
}

bool begins_as_number(const std::string& cell) {
  return cell.empty() || cell == "-" || cell == "?" ||
         std::isdigit(static_cast<unsigned char>(cell.front())) != 0;
}

bool is_figure(const std::string& cell) {
  return begins_as_number(cell) && std::ranges::count(cell, '.') <= 1 &&
         cell.find(':') == cell.npos;
}

}  // namespace

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) lines.push_back(line);
    begin = end + 1;
  }
  return lines;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t begin = line.find_first_not_of(kBlanks); begin < line.size();) {
    const std::size_t end = std::min(line.find_first_of(kBlanks, begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(kBlanks, end);
  }
  return words;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::string table_text(const TableRows& rows) {
  std::vector<std::size_t> widths;
  // Indexed by column. `figures`: true if all cells below the heading are numbers or empty.
  // `numbers`: true if a cell below the heading has a digit.
  std::vector<bool> figures;
  std::vector<bool> numbers;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    widths.resize(std::max(widths.size(), rows[r].size()), 0);
    figures.resize(widths.size(), true);
    numbers.resize(widths.size(), false);
    for (std::size_t c = 0; c < rows[r].size(); ++c) {
      widths[c] = std::max(widths[c], width_of(printable(rows[r][c])));
      if (r == 0) continue;
      if (!is_figure(rows[r][c])) figures[c] = false;
      if (rows[r][c].find_first_of("0123456789") != std::string::npos) numbers[c] = true;
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string cell = printable(row[c]);
      const std::string blanks(widths[c] - width_of(cell), ' ');
      if (c > 0) line += "  ";
      line += figures[c] && numbers[c] ? blanks + cell : cell + blanks;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string rate_text(double mbit) {
  if (mbit <= 0) return "?";
  if (mbit >= 1000) return fmt::format("{:.3g} Gbit/s", mbit / 1000);
  return fmt::format("{:.3g} Mbit/s", mbit);
}

}  // namespace mccl::cluster
