#include "cli/kit/shell_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::cli {
namespace {

constexpr std::string_view kPlain =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+,-";

constexpr std::string_view kBlanks = " \t\r\n";
/// Characters that a backslash escapes inside double quotes.
constexpr std::string_view kEscapedInQuotes = "\"\\$`";

}  // namespace

std::string shell_word(std::string_view word) {
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(word);
  std::string result = "'";
  for (const char c : word) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
  return result + "'";
}

std::string command_line(std::span<const std::string> words) {
  std::string result;
  for (const std::string& word : words) {
    if (!result.empty()) result += ' ';
    result += shell_word(word);
  }
  return result;
}

std::vector<std::string> split_words(std::string_view where, std::string_view text) {
  std::vector<std::string> words;
  std::optional<std::string> word;  // The word that is being read.
  char quote = '\0';
  const auto add = [&](char c) { word = word.value_or("") + c; };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const bool last = at + 1 == text.size();
    if (c == '\\' && quote != '\'' && !last &&
        (quote == '\0' || kEscapedInQuotes.find(text[at + 1]) != kEscapedInQuotes.npos)) {
      add(text[++at]);
    } else if (c == quote) {
      quote = '\0';
    } else if (quote == '\0' && (c == '\'' || c == '"')) {
      quote = c;
      word = word.value_or("");
    } else if (quote == '\0' && kBlanks.find(c) != kBlanks.npos) {
      if (word) words.push_back(*word);
      word.reset();
    } else {
      add(c);
    }
  }
  if (quote != '\0')
    throw InvalidArgument(fmt::format("{}: unclosed {} in {}", where, quote, in_quotes(text)));
  if (word) words.push_back(*word);
  return words;
}

}  // namespace mccl::cli
