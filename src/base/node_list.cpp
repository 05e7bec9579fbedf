#include "base/node_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl {
namespace {

constexpr std::size_t kLongestList = std::size_t{1} << 20;
constexpr std::size_t kLongestNumber = 9;
constexpr int kMostBrackets = 16;  ///< Maximum number of brackets in a name.

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw InvalidArgument(fmt::format(
      "{} is not a list of nodes: {}; expected names such as a,b or n[1-3]", in_quotes(text), why));
}

/// Splits the text at commas outside brackets.
std::vector<std::string_view> items_of(std::string_view text, std::string_view whole) {
  std::vector<std::string_view> items;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : ',';
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (depth < 0 || depth > 1) refuse(whole, "its brackets do not match");
    if (c != ',' || (depth > 0 && at < text.size())) continue;
    items.push_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  if (depth != 0) refuse(whole, "its brackets do not match");
  return items;
}

/// Expands "01-03" or "7" and keeps leading zeros.
std::vector<std::string> range_of(std::string_view text, std::string_view whole, std::size_t most) {
  const std::size_t dash = text.find('-');
  const std::string_view first = text.substr(0, dash);
  const std::string_view last = dash == text.npos ? first : text.substr(dash + 1);
  for (const std::string_view number : {first, last}) {
    const bool digits = std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
    if (number.empty() || number.size() > kLongestNumber || !digits)
      refuse(whole, fmt::format("{} is not a range of numbers", in_quotes(text)));
  }
  const long from = std::stol(std::string(first));
  const long to = std::stol(std::string(last));
  if (from > to || static_cast<std::size_t>(to - from) >= most)
    refuse(whole, fmt::format("the range {} is empty or too long", in_quotes(text)));
  std::vector<std::string> numbers;
  for (long number = from; number <= to; ++number)
    numbers.push_back(fmt::format("{:0{}}", number, first.size()));
  return numbers;
}

/// Expands one item, which may have several brackets: "rack[1-2]n[1-4]".
std::vector<std::string> expand(std::string_view item, std::string_view whole, std::size_t most,
                                int brackets_before = 0) {
  const std::size_t open = item.find('[');
  if (open == item.npos) return {std::string(item)};
  if (brackets_before == kMostBrackets)
    refuse(whole, fmt::format("a name has more than {} brackets", kMostBrackets));
  const std::size_t close = item.find(']', open);
  const std::vector<std::string> tails =
      expand(item.substr(close + 1), whole, most, brackets_before + 1);
  std::vector<std::string> names;
  for (const std::string_view range : items_of(item.substr(open + 1, close - open - 1), whole)) {
    for (const std::string& number : range_of(range, whole, most)) {
      for (const std::string& tail : tails) {
        if (names.size() == most) refuse(whole, "it is too long");
        names.push_back(fmt::format("{}{}{}", item.substr(0, open), number, tail));
      }
    }
  }
  return names;
}

}  // namespace

std::vector<std::string> expand_node_list(std::string_view text, std::size_t most) {
  if (text.size() > kLongestList) refuse(text.substr(0, 64), "it is too long");
  std::vector<std::string> names;
  for (const std::string_view item : items_of(text, text)) {
    for (std::string& name : expand(item, text, most)) {
      if (name.empty() || has_control_characters(name) || name.find_first_of(" []") != name.npos)
        refuse(text, "a name is empty or has blanks");
      if (names.size() == most) refuse(text, "it is too long");
      names.push_back(std::move(name));
    }
  }
  return names;
}

}  // namespace mccl
