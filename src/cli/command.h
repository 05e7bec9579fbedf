// The subcommands of `mccl`: what main() needs about each, and how their flags are added and
// checked.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/nearest.h"
#include "base/value_text.h"
#include "cli/launch/hostfile.h"
#include "mccl/error.h"

namespace mccl::cli {

/// Exit statuses of the program.
inline constexpr int kGood = 0;
inline constexpr int kFailed = 1;
inline constexpr int kBadArguments = 2;
inline constexpr int kWarned = 3;  ///< Status of mccl doctor if it found warnings but no problem.

/// The name of a flag in other programs, and the equivalent flag of this program.
struct OtherName {
  std::string_view theirs;
  std::string_view ours;
};

struct Command {
  CLI::App* app = nullptr;
  /// Executes the command, once its arguments are parsed. Returns the exit status. Throws
  /// InvalidArgument if arguments contradict each other, and another Error for any other failure.
  std::function<int()> run = {};
  /// Set for a command that starts another program. main() stores the name and the arguments of
  /// that program here, without parsing them.
  std::shared_ptr<std::vector<std::string>> program = {};
  /// Set for a command that starts itself again, once for each rank. main() stores the command's
  /// own arguments here.
  std::shared_ptr<std::vector<std::string>> arguments = {};
  /// Flags of similar programs, for suggestions in error messages.
  std::span<const OtherName> other_names = {};
};

// Each function adds a subcommand, with its flags and its help, to `program`.
namespace bench {
Command add(CLI::App& program);
}
namespace completion {
Command add(CLI::App& program);
Command add_man(CLI::App& program);
}  // namespace completion
namespace config {
Command add(CLI::App& program);
}
namespace doctor {
Command add(CLI::App& program);
}
namespace dump {
Command add(CLI::App& program);
}
namespace forward {
Command add(CLI::App& program);
}
namespace launch {
Command add(CLI::App& program);
}
namespace plan {
Command add(CLI::App& program);
}
namespace probe {
Command add(CLI::App& program);
}
namespace status {
Command add(CLI::App& program);
}
namespace top {
Command add(CLI::App& program);
}
namespace trace {
Command add(CLI::App& program);
}

/// A function for CLI::Option::check. Returns an error message, or an empty text if the value is
/// valid.
using ValueCheck = std::function<std::string(const std::string&)>;

ValueCheck integer_between(std::int64_t least, std::int64_t most);
ValueCheck number_between(double least, double most);
/// Accepts only `names`, whose characters must outlive the check.
ValueCheck one_of(std::vector<std::string_view> names);
/// A ValueCheck that rejects an empty value, which often comes from an unset shell variable. The
/// commands would treat an empty value like an absent flag.
std::string not_empty(const std::string& text);

/// Returns the enumerator for which name_of() returns `text`. `count` is the number of enumerators.
/// Throws InvalidArgument for an unknown name; the message begins with `flag` and suggests the
/// nearest name.
template <typename Kind>
Kind kind_of(std::string_view flag, std::string_view text, int count) {
  std::vector<std::string_view> names;
  names.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) names.push_back(name_of(static_cast<Kind>(i)));
  const auto found = std::ranges::find(names, text);
  if (found != names.end()) return static_cast<Kind>(found - names.begin());
  throw InvalidArgument(
      fmt::format("{}: {} is not known; {}", flag, in_quotes(text), choices_near(text, names)));
}

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

/// Values of the flags that specify which hosts to use.
struct WhichHosts {
  std::string hosts;
  std::string hostfile;
  std::string user;
  std::vector<std::string> ssh_arguments;
  int patience = 60;  ///< Seconds that a host may take to answer or to become ready.
};

/// Adds --hosts, --hostfile, --user, --ssh-arg and --patience. `patience` completes the help text
/// "Seconds that …" of --patience.
void add_host_flags(CLI::App& app, WhichHosts& which, const std::string& patience);

/// Returns the hosts that the flags specify, or `usual` if they specify none.
launch::Hostfile hosts_of(const WhichHosts& which, std::vector<Host> usual = {Host{}});

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
