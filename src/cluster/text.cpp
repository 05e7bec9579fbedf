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

/// True for a number, with or without a unit, and for a cell without a value.
bool is_figure(const std::string& cell) {
  const bool begins_as_number = cell.empty() || cell == "-" || cell == "?" ||
                                std::isdigit(static_cast<unsigned char>(cell.front())) != 0;
  return begins_as_number && std::ranges::count(cell, '.') <= 1 && cell.find(':') == cell.npos;
}

}  // namespace

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines = split(text, '\n');
  for (std::string_view& line : lines)
    if (line.ends_with('\r')) line.remove_suffix(1);
  std::erase(lines, "");
  return lines;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!(line = trimmed(line)).empty()) {
    words.push_back(line.substr(0, line.find_first_of(kBlanks)));
    line.remove_prefix(words.back().size());
  }
  return words;
}

std::string table_text(const TableRows& rows) {
  struct Column {
    std::size_t width = 0;
    bool figures = true;   // All cells below the heading are numbers or empty.
    bool numbers = false;  // A cell below the heading has a digit.
  };
  std::vector<Column> columns;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    columns.resize(std::max(columns.size(), rows[r].size()));
    for (std::size_t c = 0; c < rows[r].size(); ++c) {
      const std::string& cell = rows[r][c];
      columns[c].width = std::max(columns[c].width, width_of(printable(cell)));
      if (r == 0) continue;
      if (!is_figure(cell)) columns[c].figures = false;
      if (cell.find_first_of("0123456789") != cell.npos) columns[c].numbers = true;
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string cell = printable(row[c]);
      const std::string blanks(columns[c].width - width_of(cell), ' ');
      if (c > 0) line += "  ";
      line += columns[c].figures && columns[c].numbers ? blanks + cell : cell + blanks;
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
