// Command-line flags: how they are added and checked, and the messages about invalid ones.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/nearest.h"
#include "base/value_text.h"
#include "cli/command.h"
#include "mccl/error.h"

namespace mccl::cli {

/// A function for CLI::Option::check. Returns an error message, or an empty text if the value is
/// valid.
using ValueCheck = std::function<std::string(const std::string&)>;

ValueCheck integer_between(std::int64_t least, std::int64_t most);
ValueCheck number_between(double least, double most);
/// Returns a check that accepts only `names`, whose characters must outlive the check.
ValueCheck one_of(std::vector<std::string_view> names);

/// Returns the enumerator for which name_of() returns `text`. `count` is the number of enumerators.
/// Throws InvalidArgument if no enumerator has that name; the message begins with `flag` and
/// suggests the nearest name.
template <typename Kind>
Kind kind_of(std::string_view flag, std::string_view text, int count) {
  std::vector<std::string_view> names(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    names[static_cast<std::size_t>(i)] = name_of(static_cast<Kind>(i));
  const auto found = std::ranges::find(names, text);
  if (found != names.end()) return static_cast<Kind>(found - names.begin());
  throw InvalidArgument(
      fmt::format("{}: {} is not known; {}", flag, in_quotes(text), choices_near(text, names)));
}

/// A ValueCheck that rejects an empty value, which often comes from an unset shell variable. The
/// commands would treat an empty value like an absent flag.
std::string not_empty(const std::string& text);

template <typename T>
inline constexpr bool kIsList = false;
template <typename T>
inline constexpr bool kIsList<std::vector<T>> = true;

/// Adds a flag with a value. `name` holds the flag's names and, after a blank, the placeholder that
/// the help shows for the value. A flag whose value is a list may be repeated.
template <typename T>
CLI::Option* add_value(CLI::App& app, const std::string& name, T& value, const std::string& help,
                       const ValueCheck& check = {}) {
  const std::size_t blank = name.find(' ');
  CLI::Option* option = app.add_option(name.substr(0, blank), value, help);
  if (blank != name.npos) option->option_text(name.substr(blank + 1));
  if constexpr (kIsList<T>) option->allow_extra_args(false)->take_all();
  return check ? option->check(check) : option;
}

using Words = std::span<const char* const>;

/// Returns the message for an error in parsing `words`, the arguments of `command`: the parser's
/// own message, or a suggestion of the nearest flag if a flag is unknown.
std::string complaint_of(const CLI::ParseError& error, const CLI::App& command, Words words,
                         std::span<const OtherName> other_names = {});

/// Returns the index of the first of `words`, the arguments of `command`, that is neither a flag of
/// `command` nor the value of such a flag. Returns the number of words if there is no such word. A
/// word "--" ends the flags, so the index of the word after it is returned.
std::size_t end_of_flags(const CLI::App& command, Words words);

}  // namespace mccl::cli
