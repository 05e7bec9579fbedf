#include "cli/unknown_flag.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/nearest.h"
#include "base/value_text.h"
#include "cli/program_words.h"

namespace mccl::cli {
namespace {

/// As people write them, with their dashes.
std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flags.push_back("-" + name);
  }
  return flags;
}

bool is_number(std::string_view word) { return parse_number(word).has_value(); }

}  // namespace

std::string unknown_flag(const CLI::App& command, std::span<const char* const> words) {
  const std::vector<std::string> flags = flags_of(command);
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string_view word = words[at];
    if (word == "--") break;
    if (!word.starts_with('-') || word == "-" || is_number(word)) continue;
    const std::string_view name =
        word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
    if (std::ranges::find(flags, name) != flags.end()) {
      if (next_is_value(command, name == word ? word : "--=")) ++at;
      continue;
    }
    const std::vector<std::string_view> known(flags.begin(), flags.end());
    const std::string parent = command.get_parent() == nullptr ? "" : "mccl ";
    return fmt::format("{} is not a flag; did you mean \"{}\"? \"{}{} --help\" explains all",
                       in_quotes(name), nearest_of(name, known), parent, command.get_name());
  }
  return {};
}

}  // namespace mccl::cli
