#include "cli/run_program.h"

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
#include "cli/command.h"
#include "cluster/finding.h"
#include "mccl/error.h"

namespace mccl::cli {
namespace {

/// All commands, in the order in which the help lists them.
constexpr Command (*kCommands[])(CLI::App& program) = {
    launch::add, config::add,  doctor::add,        bench::add, plan::add,
    status::add, top::add,     dump::add,          trace::add, completion::add,
    probe::add,  forward::add, completion::add_man};

int complain(std::string_view who, std::string_view what, int status) {
  fmt::print(stderr, "{}: {}\n", who, what);
  return status;
}

/// Null if the first argument names no command.
const Command* command_of(int argc, char** argv, const std::vector<Command>& commands) {
  if (argc < 2) return nullptr;
  const auto found = std::ranges::find_if(
      commands, [&](const Command& command) { return command.app->get_name() == argv[1]; });
  return found == commands.end() ? nullptr : &*found;
}

/// Replaces `mccl help`, `mccl help launch` and `mccl version` with the equivalent flags.
std::vector<char*> words_of(int argc, char** argv) {
  static char help[] = "--help";
  static char version[] = "--version";
  std::vector<char*> words(argv, argv + argc);
  if (argc == 2 && std::string_view(argv[1]) == "version") return {argv[0], version};
  if (argc < 2 || std::string_view(argv[1]) != "help") return words;
  if (argc == 2) return {argv[0], help};
  return {argv[0], argv[2], help};
}

/// True if the command must print JSON, even on failure: it has a flag --json, and the arguments
/// contain it. Returns false for commands whose option --json takes a file name.
bool is_to_print_json(int argc, char** argv, const Command* command) {
  const std::span<const char* const> words(argv, argv + argc);
  const auto end = std::ranges::find(words, std::string_view("--"));
  if (std::find(words.begin(), end, std::string_view("--json")) == end || command == nullptr)
    return false;
  const CLI::Option* json = command->app->get_option_no_throw("--json");
  return json != nullptr && json->get_items_expected_max() == 0;
}

/// Empty if the first argument is a flag or a subcommand. CLI11's message suggests no command.
std::string unknown_command(int argc, char** argv, const std::vector<Command>& commands) {
  if (argc < 2 || std::string_view(argv[1]).starts_with('-')) return {};
  if (command_of(argc, argv, commands) != nullptr) return {};
  std::vector<std::string_view> names;
  names.reserve(commands.size());
  for (const Command& command : commands) names.push_back(command.app->get_name());
  const auto nearest = nearest_of(argv[1], names);
  const std::string advice = nearest ? fmt::format("did you mean \"mccl {}\"? ", *nearest) : "";
  return fmt::format("{} is not a command; {}\"mccl --help\" lists them", in_quotes(argv[1]),
                     advice);
}

/// If the command starts another program, stores that program's name and arguments in
/// `command->program`. Returns the number of words at the start of `argv` that CLI11 must parse.
int take_program(int argc, char** argv, const Command* command) {
  if (command == nullptr || command->program == nullptr) return argc;
  const std::size_t flags = end_of_flags(*command->app, {argv + 2, argv + argc});
  command->program->assign(argv + 2 + flags, argv + argc);
  const bool dashes = flags > 0 && std::string_view(argv[1 + flags]) == "--";
  return static_cast<int>(2 + flags - (dashes ? 1 : 0));
}

/// Returns the exit status. If `json` is true, prints an error also as {"error": …}, for the
/// calling script.
int parse_and_run(CLI::App& program, const Command* command, int argc, char** argv, bool json) {
  const Command whole{.app = &program};
  const Command& chosen = command == nullptr ? whole : *command;
  const auto refuse = [&](std::string_view what, int status) {
    if (json) fmt::print("{}", cluster::dumped({{"error", what}}));
    const std::string name = chosen.app->get_name();
    return complain(command == nullptr ? name : "mccl " + name, what, status);
  };
  try {
    program.parse(argc, argv);
    if (command != nullptr) return command->run();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.exit(error);
    const int first = std::min(argc, command == nullptr ? 1 : 2);
    return refuse(complaint_of(error, *chosen.app, {argv + first, argv + argc}, chosen.other_names),
                  kBadArguments);
  } catch (const InvalidArgument& error) {
    return refuse(error.what(), kBadArguments);
  } catch (const std::exception& error) {
    return refuse(error.what(), kFailed);
  }
  fmt::print("{}", program.help());
  return kGood;
}

/// Opens /dev/null for each closed standard stream, whose descriptor a file of the program could
/// get otherwise. The direction is wrong, so that reads and writes still fail.
void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) < 0) {
      static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
    }
  }
}

/// Flushes standard output, because an error such as a full disk may appear only then. Returns
/// `status`, or kFailed if a write failed.
int with_output_written(int status) {
  const bool good = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (good) return status;
  // errno no longer holds the cause of an earlier failure. Writing one more byte sets it again.
  errno = 0;
  [[maybe_unused]] const ssize_t n = ::write(STDOUT_FILENO, "\n", 1);
  return complain("mccl", fmt::format("cannot write standard output: {}", std::strerror(errno)),
                  kFailed);
}

int run(int argc, char** argv) {
  CLI::App program{"MCCL: collective communication for the machines people really have.", "mccl"};
  program.set_version_flag("--version", "mccl " MCCL_VERSION);
  program.require_subcommand(0, 1);
  program.footer("\"mccl COMMAND --help\" explains a command, with examples.");
  std::vector<Command> commands;
  for (const auto add : kCommands) commands.push_back(add(program));

  const std::string unknown = unknown_command(argc, argv, commands);
  if (!unknown.empty()) return complain("mccl", unknown, kBadArguments);
  const Command* command = command_of(argc, argv, commands);
  const bool json = is_to_print_json(argc, argv, command);
  if (command != nullptr && command->arguments) command->arguments->assign(argv + 2, argv + argc);
  return parse_and_run(program, command, take_program(argc, argv, command), argv, json);
}

}  // namespace

int run_program(int argc, char** argv) {
  occupy_standard_streams();
  std::vector<char*> words = words_of(argc, argv);
  return with_output_written(run(static_cast<int>(words.size()), words.data()));
}

}  // namespace mccl::cli
