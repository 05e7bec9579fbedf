#include "cli/program_words.h"

#include <string>

namespace mccl::cli {
namespace {

bool takes_value(const CLI::App& command, const std::string& flag) {
  const CLI::Option* option = command.get_option_no_throw(flag);
  return option != nullptr && option->get_items_expected_max() > 0;
}

}  // namespace

bool next_is_value(const CLI::App& command, std::string_view word) {
  if (word.starts_with("--"))
    return word.find('=') == word.npos && takes_value(command, std::string(word));
  return word.size() == 2 && takes_value(command, std::string(word));
}

std::size_t end_of_flags(const CLI::App& command, std::span<const char* const> words) {
  std::size_t at = 0;
  while (at < words.size()) {
    const std::string_view word = words[at];
    if (word == "--") return at + 1;
    if (!word.starts_with('-') || word == "-") return at;
    at += next_is_value(command, word) && at + 1 < words.size() ? 2 : 1;
  }
  return words.size();
}

}  // namespace mccl::cli
