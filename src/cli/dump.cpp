#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/flags.h"
#include "cli/kit/file.h"
#include "cli/sight/attach.h"
#include "mccl/error.h"
#include "node/local_socket.h"

namespace mccl::cli::dump {
namespace {

constexpr int kMostRank = (1 << 20) - 1;

constexpr const char* kFooter =
    R"(Every rank keeps its flight record in memory: a record of its last 4096 calls. This command
gets the record from a running process of yours on this host, even while a call is stuck, and
prints it as JSON. docs/inspect.md describes the fields.

Examples:
  mccl dump 4711                     print the record of process 4711
  mccl dump 4711 -o rank0.json       write it to a file
  pgrep -f train.py | while read pid; do mccl dump $pid -o $pid.json; done

Exit status: 0 success, 1 the process does not answer, 2 there is no such process, or bad arguments.)";

struct DumpFlags {
  int pid = 0;
  std::optional<int> rank;
  std::string output;
};

int run_dump(const DumpFlags& flags) {
  check_writable("--output", flags.output);
  std::vector<sight::RankSocket> ranks = sight::ranks_of(flags.pid);
  if (flags.rank)
    std::erase_if(ranks, [&](const sight::RankSocket& each) { return each.rank != *flags.rank; });
  if (ranks.empty())
    throw InvalidArgument(fmt::format("--rank: process {} has no rank {}", flags.pid, *flags.rank));
  if (ranks.size() > 1) {
    throw InvalidArgument(
        fmt::format("process {} has {} ranks; choose one with --rank", flags.pid, ranks.size()));
  }
  const std::string record = sight::ask(ranks.front(), node::kRequestRecord) + "\n";
  if (flags.output.empty()) {
    fmt::print("{}", record);
  } else {
    write_file(flags.output, record);
  }
  return kGood;
}

}  // namespace

Command add(CLI::App& program) {
  const auto flags = std::make_shared<DumpFlags>();
  CLI::App* app = program.add_subcommand("dump", "Print the last calls of a running process");
  app->footer(kFooter);
  add_value(*app, "pid PID", flags->pid, "Process ID of a rank on this host",
            integer_between(1, 1 << 30))
      ->required();
  add_value(*app, "--rank R", flags->rank, "Rank to print, if the process has several ranks",
            integer_between(0, kMostRank));
  add_value(*app, "-o,--output FILE", flags->output, "Write the record to FILE");
  return {app, [flags] { return run_dump(*flags); }};
}

}  // namespace mccl::cli::dump
