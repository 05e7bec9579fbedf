#include "cli/unknown_flag.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
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

std::string refusal_of(std::string_view name, std::optional<std::string_view> meant,
                       const CLI::App& command) {
  const std::string advice = meant ? fmt::format("did you mean \"{}\"? ", *meant) : "";
  const std::string parent = command.get_parent() == nullptr ? "" : "mccl ";
  return fmt::format("{} is not a flag; {}\"{}{} --help\" explains all", in_quotes(name), advice,
                     parent, command.get_name());
}

}  // namespace

std::string unknown_flag(const CLI::App& command, std::span<const char* const> words,
                         std::span<const OtherName> other_names) {
  const std::vector<std::string> flags = flags_of(command);
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string_view word = words[at];
    if (word == "--") break;
    if (!word.starts_with('-') || word == "-" || is_number(word)) continue;
    const std::string_view whole = word.substr(0, word.find('='));
    const auto other = std::ranges::find(other_names, whole, &OtherName::theirs);
    if (other != other_names.end()) return refusal_of(whole, other->ours, command);
    const std::string_view name = word.starts_with("--") ? whole : word.substr(0, 2);
    if (std::ranges::find(flags, name) != flags.end()) {
      if (next_is_value(command, name == word ? word : "--=")) ++at;
      continue;
    }
    const std::vector<std::string_view> known(flags.begin(), flags.end());
    return refusal_of(name, nearest_of(name, known), command);
  }
  return {};
}

}  // namespace mccl::cli
