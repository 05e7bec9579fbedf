// mccl top: starts the live view, which is written in Python (python/mccl/top.py).
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/flags.h"
#include "cli/kit/program.h"
#include "mccl/error.h"

namespace mccl::cli::top {
namespace {

constexpr double kShortestPause = 0.1;
constexpr double kLongestPause = 3600;

constexpr const char* kFooter =
    R"(A live view of the jobs of this user that have ranks on this host. For each rank it shows calls,
bytes sent and received per second, a history of the calls, the call that the rank is in, and the
ranks that it waits for. It shows what `mccl status --json --follow` prints.

Keys: s sorts by rank, by calls per second or by waiting time; f filters rows by words; l shows
links instead of ranks; d writes the flight record of the selected rank to a file; q ends.

The view needs Python with the package textual: pip install 'mccl-engine[top]'

Examples:
  mccl top                 all jobs of this user on this host
  mccl top 4711 --every 5  the job of process 4711, every five seconds

Exit status: 0 when the jobs or the user end the view, 2 no such job, or bad arguments.)";

struct TopFlags {
  std::optional<int> pid;
  double every = 1;
};

[[noreturn]] int run_top(const TopFlags& flags) {
  if (::isatty(STDOUT_FILENO) == 0)
    throw InvalidArgument(
        "mccl top needs a terminal as standard output; otherwise use mccl status --follow");
  std::vector<std::string> words = {"--program", this_program().string(), "--seconds",
                                    fmt::format("{}", flags.every)};
  if (flags.pid) words.push_back(std::to_string(*flags.pid));
  become_python("mccl top", "top", std::move(words));
}

}  // namespace

Command add(CLI::App& program) {
  const auto flags = std::make_shared<TopFlags>();
  CLI::App* app = program.add_subcommand("top", "Watch running jobs in a terminal");
  app->footer(kFooter);
  add_value(*app, "pid PID", flags->pid, "Process ID of a rank on this host; default: all jobs",
            integer_between(1, 1 << 30));
  add_value(*app, "--every SECONDS", flags->every, "Time between two refreshes; default 1",
            number_between(kShortestPause, kLongestPause));
  return {app, [flags] { return run_top(*flags); }};
}

}  // namespace mccl::cli::top
