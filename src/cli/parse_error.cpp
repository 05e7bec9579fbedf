#include "cli/parse_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/value_text.h"

namespace mccl::cli {
namespace {

using Words = std::span<const char* const>;

/// -n of "-n 4" and "-n4", --number of "--number 4" and "--number=4".
bool is_typed(std::string_view flag, Words words) {
  return std::ranges::any_of(words, [&](std::string_view word) {
    if (!flag.starts_with("--")) return word.starts_with(flag);
    return word.substr(0, word.find('=')) == flag;
  });
}

/// CLI11 calls an option by the first of its long names.
std::string typed_name(const CLI::App& command, const std::string& name, Words words) {
  const CLI::Option* option = command.get_option_no_throw(name);
  if (option == nullptr) return name;
  for (const std::string& other : option->get_lnames())
    if (is_typed("--" + other, words)) return "--" + other;
  for (const std::string& other : option->get_snames())
    if (is_typed("-" + other, words)) return "-" + other;
  return name;
}

/// Too many values, or too few.
std::string mismatch(const CLI::Option& option) {
  const int most = option.get_items_expected_max();
  if (most == 0) return "expected no value";
  if (option.count() > static_cast<std::size_t>(most))
    return fmt::format("expected once; found {} times; leave out all but one", option.count());
  return fmt::format("expected a value ({}) after it; found none", option.get_option_text());
}

/// The option that a message begins with the name of.
const CLI::Option* first_option_in(const std::string& message, const CLI::App& command) {
  const std::string name = message.substr(0, message.find_first_of(": "));
  return command.get_option_no_throw(name);
}

/// Of the two options of "--a excludes --b".
std::pair<std::string, std::string> both_names(const std::string& message, std::string_view verb,
                                               const CLI::App& command, Words words) {
  const std::size_t at = std::min(message.find(verb), message.size() - verb.size());
  return {typed_name(command, message.substr(0, at), words),
          typed_name(command, message.substr(at + verb.size()), words)};
}

std::string text_of(const CLI::ParseError& error, const CLI::App& command, Words words) {
  std::string message = error.what();
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) {
    const auto [one, other] = both_names(message, " excludes ", command, words);
    return fmt::format("{} excludes {}; leave one out", one, other);
  }
  if (dynamic_cast<const CLI::RequiresError*>(&error) != nullptr) {
    const auto [one, other] = both_names(message, " requires ", command, words);
    return fmt::format("{0} is for {1}; give {1} too, or leave {0} out", one, other);
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::size_t at = message.rfind(": ");
    return fmt::format("expected flags only; found {}",
                       in_quotes(at == message.npos ? message : message.substr(at + 2)));
  }
  const CLI::Option* option = first_option_in(message, command);
  if (option == nullptr) return message;
  const std::string name = typed_name(command, option->get_name(), words);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
    return fmt::format("{}: {}", name, mismatch(*option));
  const std::size_t colon = message.find(": ");
  return colon == message.npos ? message : name + message.substr(colon);
}

}  // namespace

std::string complaint_of(const CLI::ParseError& error, const CLI::App& command, Words words) {
  const std::string parent = command.get_parent() == nullptr ? "" : "mccl ";
  return fmt::format("{}; \"{}{} --help\" explains all", text_of(error, command, words), parent,
                     command.get_name());
}

}  // namespace mccl::cli
