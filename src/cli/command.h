// The subcommands of the program, and what main() needs to know about each.
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
inline constexpr int kWarned = 3;  ///< Status of mccl doctor if it found warnings but no problem.

/// A flag's name in other programs, and its name in this program.
struct OtherName {
  std::string_view theirs;
  std::string_view ours;
};

struct Command {
  CLI::App* app = nullptr;
  /// Called after the arguments are parsed. Returns the exit status. Throws InvalidArgument if
  /// arguments make no sense together, and other Errors for failures.
  std::function<int()> run = {};
  /// Set for a command that starts another program: receives the name and the arguments of that
  /// program, which are not parsed.
  std::shared_ptr<std::vector<std::string>> program = {};
  /// Set for a command that starts itself again, once for each rank: receives its arguments.
  std::shared_ptr<std::vector<std::string>> arguments = {};
  /// Flags of similar programs that this command lacks. If the user gives one, the error message
  /// suggests the equivalent flag of this command.
  std::span<const OtherName> other_names = {};
};

/// Adds a subcommand with its flags and its help.
using AddCommand = Command (*)(CLI::App& program);
/// Adds the command that measures the speed of the collectives and the upper bounds of the machine.
Command add_bench(CLI::App& program);
/// Adds the command that prints the completion of a shell, made from the flags.
Command add_completion(CLI::App& program);
/// Adds the command that finds cables, sets them up and writes a hostfile.
Command add_config(CLI::App& program);
/// Adds the command that finds faults of a machine or a cluster before a job runs on it.
Command add_doctor(CLI::App& program);
/// Adds the command that mccl launch starts on hosts that may not reach the host of rank 0.
Command add_forward(CLI::App& program);
/// Adds the command that starts the ranks of a job, here and on other machines, and watches them
/// until they end.
Command add_launch(CLI::App& program);
/// Adds the command that prints manual pages, made from the flags.
Command add_man(CLI::App& program);
/// Adds the command that predicts which schedule a call would take, and how long, without making
/// the call.
Command add_plan(CLI::App& program);
/// Adds the command that answers mccl doctor and mccl config on other hosts.
Command add_probe(CLI::App& program);

}  // namespace mccl::cli
