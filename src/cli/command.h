// What main needs to know of a subcommand.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli {

/// Exit statuses of the program.
inline constexpr int kGood = 0;
inline constexpr int kFailed = 1;
inline constexpr int kBadArguments = 2;
inline constexpr int kWarned = 3;  ///< Of mccl doctor: warnings, and no problem.

/// A flag as the commands of others call it, and what it is here.
struct OtherName {
  std::string_view theirs;
  std::string_view ours;
};

struct Command {
  CLI::App* app = nullptr;
  /// After its arguments are parsed. Returns the exit status; throws InvalidArgument for arguments
  /// that make no sense together, and other Errors for what failed.
  std::function<int()> run = {};
  /// For a command that starts another program: takes that program's words, which are not parsed.
  std::shared_ptr<std::vector<std::string>> program = {};
  /// Flags that it does not know, and should propose its own for.
  std::span<const OtherName> other_names = {};
};

/// Adds the subcommand with its flags and its help.
using AddCommand = Command (*)(CLI::App& program);

}  // namespace mccl::cli
