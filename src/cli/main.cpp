// The `mccl` program: a table of subcommands.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/nearest.h"
#include "base/value_text.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/config.h"
#include "cli/doctor.h"
#include "cli/launch.h"
#include "cli/plan.h"
#include "cli/probe.h"
#include "cli/program_words.h"
#include "cli/unknown_flag.h"
#include "cluster/finding.h"
#include "mccl/error.h"

namespace mccl::cli {
namespace {

/// In the order in which the help shows them.
constexpr AddCommand kCommands[] = {add_launch, add_config, add_doctor,
                                    add_bench,  add_plan,   add_probe};

int complain(std::string_view who, std::string_view what, int status) {
  fmt::print(stderr, "{}: {}\n", who, what);
  return status;
}

/// Whether the first word's command is to print JSON, whatever happens. To some commands the flag
/// is the name of a file that they write.
bool is_to_print_json(int argc, char** argv, const std::vector<Command>& commands) {
  const std::span<const char* const> words(argv, argv + argc);
  const auto end = std::ranges::find(words, std::string_view("--"));
  if (std::find(words.begin(), end, std::string_view("--json")) == end) return false;
  return std::ranges::any_of(commands, [&](const Command& command) {
    const CLI::Option* json = command.app->get_option_no_throw("--json");
    return command.app->get_name() == argv[1] && json != nullptr &&
           json->get_items_expected_max() == 0;
  });
}

/// The same as {"error": …} for the script that asked for JSON.
int complain_to_script(bool json, std::string_view who, std::string_view what, int status) {
  if (json) fmt::print("{}", cluster::dumped({{"error", what}}));
  return complain(who, what, status);
}

/// A first word that is neither a flag nor a subcommand; CLI11 would only call it unexpected.
std::string unknown_command(int argc, char** argv, const std::vector<Command>& commands) {
  if (argc < 2 || std::string_view(argv[1]).starts_with('-')) return {};
  std::vector<std::string_view> names;
  names.reserve(commands.size());
  for (const Command& command : commands) names.push_back(command.app->get_name());
  for (const std::string_view name : names)
    if (name == argv[1]) return {};
  return fmt::format("{} is not a command; did you mean \"mccl {}\"? \"mccl --help\" lists them",
                     in_quotes(argv[1]), nearest_of(argv[1], names));
}

/// Hands the words of a program that a command starts to that command. Returns how many are left
/// to parse.
int take_program(int argc, char** argv, const std::vector<Command>& commands) {
  for (const Command& command : commands) {
    if (argc < 2 || command.app->get_name() != argv[1] || command.program == nullptr) continue;
    const std::size_t flags = end_of_flags(*command.app, {argv + 2, argv + argc});
    command.program->assign(argv + 2 + flags, argv + argc);
    const bool dashes = flags > 0 && std::string_view(argv[1 + flags]) == "--";
    return static_cast<int>(2 + flags - (dashes ? 1 : 0));
  }
  return argc;
}

/// Complains of a flag that the command, the first word, does not know, or the program itself where
/// that word is a flag; CLI11 would only call it unexpected. `argc` ends before the words of a
/// program that the command starts.
std::string complaint_of_flags(const CLI::App& program, int argc, char** argv,
                               const std::vector<Command>& commands) {
  if (argc < 2) return {};
  if (std::string_view(argv[1]).starts_with('-'))
    return unknown_flag(program, std::span<const char* const>(argv + 1, argv + argc));
  for (const Command& command : commands)
    if (command.app->get_name() == argv[1])
      return unknown_flag(*command.app, std::span<const char* const>(argv + 2, argv + argc));
  return {};
}

/// A file of the program's own must not get the number of a standard stream that was closed: what
/// is printed would go there. Neither end of these can be used, so that using them is an error.
void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) < 0) {
      static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
    }
  }
}

/// What was printed may still be on its way, to a disk that is full.
int with_output_written(int status) {
  const bool good = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (good) return status;
  // Whoever printed may have been told the cause; one byte more brings it out again.
  errno = 0;
  [[maybe_unused]] const ssize_t n = ::write(STDOUT_FILENO, "\n", 1);
  return complain("mccl", fmt::format("cannot write standard output: {}", std::strerror(errno)),
                  kFailed);
}

/// What a command does after its flags are parsed.
int run_command(const Command& command, bool json) {
  const std::string who = fmt::format("mccl {}", command.app->get_name());
  try {
    return command.run();
  } catch (const InvalidArgument& error) {
    return complain_to_script(json, who, error.what(), kBadArguments);
  } catch (const std::exception& error) {
    return complain_to_script(json, who, error.what(), kFailed);
  }
}

int run(int argc, char** argv) {
  CLI::App program{"MCCL: collective communication for the machines people really have.", "mccl"};
  program.set_version_flag("--version", "mccl " MCCL_VERSION);
  program.require_subcommand(0, 1);
  program.footer("\"mccl COMMAND --help\" explains a command, with examples.");
  std::vector<Command> commands;
  for (const AddCommand add : kCommands) commands.push_back(add(program));

  const std::string unknown = unknown_command(argc, argv, commands);
  if (!unknown.empty()) return complain("mccl", unknown, kBadArguments);
  const bool json = is_to_print_json(argc, argv, commands);
  const int ours = take_program(argc, argv, commands);
  const std::string flag = complaint_of_flags(program, ours, argv, commands);
  if (!flag.empty()) {
    const bool of_command = !std::string_view(argv[1]).starts_with('-');
    return complain_to_script(json, of_command ? fmt::format("mccl {}", argv[1]) : "mccl", flag,
                              kBadArguments);
  }
  try {
    program.parse(ours, argv);
  } catch (const CLI::ParseError& error) {
    if (program.exit(error) == 0) return kGood;
    if (json) fmt::print("{}", cluster::dumped({{"error", error.what()}}));
    return kBadArguments;
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    return run_command(command, json);
  }
  fmt::print("{}", program.help());
  return kGood;
}

}  // namespace
}  // namespace mccl::cli

int main(int argc, char** argv) {
  mccl::cli::occupy_standard_streams();
  return mccl::cli::with_output_written(mccl::cli::run(argc, argv));
}
