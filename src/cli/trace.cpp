// `mccl trace` and `mccl dump`: the flight records of ranks.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/value_text.h"
#include "cli/command.h"
#include "cli/kit/file.h"
#include "cli/sight/record.h"
#include "cli/sight/survey.h"
#include "mccl/error.h"
#include "node/local_socket.h"

namespace mccl::cli::trace {
namespace {

using sight::FlightRecord;

constexpr const char* kFooter =
    R"(Reads the flight records of the ranks of one job, as mccl dump prints them or MCCL_FLIGHT_RECORDER_FILE
has written them, and reports which calls differ between ranks, which ranks did not make a call that
other ranks waited for, and which ranks were late. If the clocks of hosts disagree, it corrects
the times, so that no collective ends on one rank before another rank has begun it.

-o writes a trace in the format of Chrome, which https://ui.perfetto.dev draws: a process for each
rank, and in it a row for each group. --torch writes the records in the format of torch's analyser:
  mccl trace *.json --torch dumps && python -m torch.distributed.flight_recorder.fr_trace dumps

Examples:
  mccl trace /data/run7/*.json
  mccl trace rank0.json rank1.json -o trace.json

Exit status: 0 even if ranks differ; 1 a file cannot be written; 2 bad arguments or records.)";

struct TraceFlags {
  std::vector<std::string> files;
  std::string output;
  std::string torch;
};

int run_trace(const TraceFlags& flags) {
  check_writable("--output", flags.output);
  std::vector<FlightRecord> records;
  for (const std::string& file : flags.files)
    records.push_back(sight::parse_record(
        read_file(fmt::format("cannot read {}", in_quotes(file)), file, "a flight record"), file));
  sight::check_one_job(records);
  for (const std::string& sentence : sight::align(records)) fmt::print("{}\n", sentence);
  const std::vector<std::string> found = sight::findings(records);
  for (const std::string& sentence : found) fmt::print("{}\n", sentence);
  if (found.empty()) {
    fmt::print("The records of {} of {} ranks agree, and no rank was late.\n", records.size(),
               records.front().size);
  }
  if (!flags.output.empty()) write_file(flags.output, sight::chrome_trace(records) + "\n");
  if (flags.torch.empty()) return kGood;
  std::error_code error;
  std::filesystem::create_directories(flags.torch, error);
  for (const FlightRecord& record : records)
    write_file(fmt::format("{}/rank_{}", flags.torch, record.rank), sight::torch_dump(record));
  return kGood;
}

}  // namespace

Command add(CLI::App& program) {
  const auto flags = std::make_shared<TraceFlags>();
  CLI::App* app =
      program.add_subcommand("trace", "Compare the flight records of ranks, and draw them");
  app->footer(kFooter);
  app->add_option("file", flags->files, "Files with flight records, one for each rank")
      ->required()
      ->check(not_empty);
  add_value(*app, "-o,--output FILE", flags->output, "Write a trace for Perfetto to FILE");
  add_value(*app, "--torch FOLDER", flags->torch,
            "Write the records to FOLDER, for torch's analyser");
  return {app, [flags] { return run_trace(*flags); }};
}

}  // namespace mccl::cli::trace

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
