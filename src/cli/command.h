// The subcommands of `mccl`, and the data that main() needs about each.
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
  /// Set for a command that starts another program, and null otherwise. main() stores the name and
  /// the arguments of that program here, without parsing them.
  std::shared_ptr<std::vector<std::string>> program = {};
  /// Set for a command that starts itself again, once for each rank, and null otherwise. main()
  /// stores the command's own arguments here.
  std::shared_ptr<std::vector<std::string>> arguments = {};
  /// Flags of similar programs that this command lacks. If the user gives one, the error message
  /// suggests the equivalent flag of this command.
  std::span<const OtherName> other_names = {};
};

/// Adds a subcommand, with its flags and its help, to `program`. All functions below have this
/// type.
using AddCommand = Command (*)(CLI::App& program);
/// Measures the speed of the collectives, and the maximum speed that this machine allows.
namespace bench {
Command add(CLI::App& program);
}
/// Prints shell completions or manual pages, which are generated from the flags.
namespace completion {
Command add(CLI::App& program);
Command add_man(CLI::App& program);
}  // namespace completion
/// Finds cables, sets them up and writes a hostfile.
namespace config {
Command add(CLI::App& program);
}
/// Finds faults of a machine or a cluster before a job runs on it.
namespace doctor {
Command add(CLI::App& program);
}
/// Forwards connections at a port of this host to torch's store. `mccl launch` starts this command
/// on hosts that may be unable to reach the host of rank 0.
namespace forward {
Command add(CLI::App& program);
}
/// Starts the ranks of a job, here and on other machines, and watches them until they end.
namespace launch {
Command add(CLI::App& program);
}
/// Predicts which schedule a call would use and how long it would take, without making the call.
namespace plan {
Command add(CLI::App& program);
}
/// Runs on each host that mccl doctor or mccl config queries, and answers their requests.
namespace probe {
Command add(CLI::App& program);
}
/// Prints the flight record of a running process.
namespace dump {
Command add(CLI::App& program);
}
/// Shows the running jobs of this user on this host.
namespace status {
Command add(CLI::App& program);
}
/// Watches the running jobs in a terminal.
namespace top {
Command add(CLI::App& program);
}
/// Merges and compares the flight records of ranks.
namespace trace {
Command add(CLI::App& program);
}

}  // namespace mccl::cli
