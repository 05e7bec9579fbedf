#include "transport/rdma/survey/grid.h"

#include <fmt/format.h>

#include <algorithm>

namespace mccl::transport::rdma {
namespace {

/// Maximum number of ranks (kMostDrawn) and of characters per cell (kMostWide), to fit on a
/// terminal.
constexpr std::size_t kMostDrawn = 12;
constexpr std::size_t kMostWide = 24;

std::string cut(const std::string& text) {
  return text.size() <= kMostWide ? text : fmt::format("{:.{}}...", text, kMostWide - 3);
}

std::string without_end(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::string draw(const Grid& cells, const std::vector<std::string>& names) {
  const std::size_t drawn = std::min(cells.size(), kMostDrawn);
  std::vector<std::size_t> widths(drawn);
  std::size_t margin = 0;
  for (std::size_t row = 0; row < drawn; ++row) {
    margin = std::max(margin, cut(names[row]).size());
    for (std::size_t column = 0; column < drawn; ++column) {
      widths[column] = std::max(
          {widths[column], cut(cells[row][column]).size(), fmt::format("to {}", column).size()});
    }
  }
  std::string head = fmt::format("\n  {:{}}", "from", margin);
  for (std::size_t column = 0; column < drawn; ++column)
    head += fmt::format("  {:{}}", fmt::format("to {}", column), widths[column]);
  std::string picture = without_end(std::move(head));
  for (std::size_t row = 0; row < drawn; ++row) {
    std::string line = fmt::format("\n  {:{}}", cut(names[row]), margin);
    for (std::size_t column = 0; column < drawn; ++column)
      line += fmt::format("  {:{}}", cut(cells[row][column]), widths[column]);
    picture += without_end(std::move(line));
  }
  if (drawn < cells.size()) picture += fmt::format("\n  ... of {} ranks", cells.size());
  return picture;
}

}  // namespace mccl::transport::rdma
