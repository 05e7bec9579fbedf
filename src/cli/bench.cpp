#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/machine.h"
#include "cli/bench/bounds.h"
#include "cli/bench/routine.h"
#include "cli/command.h"
#include "cli/kit/file.h"
#include "cli/kit/program.h"
#include "cli/kit/quantity.h"
#include "mccl/mccl.h"
#include "mccl/meeting.h"
#include "rendezvous/meeting/join.h"

namespace mccl::cli::bench {
namespace {

constexpr int kMostBenchRanks = 1024;
constexpr std::uint64_t kMostCalls = 10'000'000;

constexpr const char* kSummary = "Measure the collectives, and the upper bounds of this machine";

constexpr const char* kFooter = R"(The table, with the terms of nccl-tests:
  size     bytes of the whole operation (of all ranks' parts together for all_gather,
           reduce_scatter, all_to_all, gather and scatter), rounded down to whole elements
  count    elements that a rank passes: its own part, if the operation has parts
  time     mean time of a call on the slowest rank; p50, p99: percentiles of calls on rank 0
  algbw    size / time
  busbw    algbw x 2(n-1)/n for all_reduce, x (n-1)/n for operations with parts, x 1 otherwise:
           comparable with the bandwidth of the hardware for any number of ranks
  wrong    number of wrong elements, over all ranks
  error    with --compression, in place of wrong: the largest difference from the exact sum,
           relative to the largest number in that sum. Lines below the tables show the bytes that a
           rank sends with the codec and without compression.
  hidden   with --overlap, below the tables: the share of a call's time that a computation of the
           same length hides. It needs a core for the progress thread beside that of the caller.
A row has two halves: the call out of place, and the call in place.

Examples:
  mccl bench                                   all_reduce between 2 processes of this machine
  mccl bench all --ranks 4 --sizes 8,64K,16M   every collective at three sizes
  mccl bench all_reduce --sizes 8:64M:x2 --dtype bf16 --json result.json
  mccl bench broadcast --transport tcp --root 1 --no-bounds
  mccl bench all_reduce --sizes 1M,16M --overlap
  mccl bench --json b.json --plot both.svg a.json    compared with an earlier result
  mccl bench --plot both.svg a.json b.json           pictures of two earlier results
On several machines (srun, mpirun or torchrun can replace mccl launch):
  mccl launch --hosts a,b mccl bench all_reduce
To measure a codec on the links between machines (sums between ranks that share memory are exact):
  mccl launch --hosts a,b mccl bench all_reduce --compression int8

Exit status: 0 success, 1 wrong results or a failed run, 2 bad arguments.)";

/// Flags that the help does not show. --one-host marks a rank that `mccl bench` or `mccl plan
/// --measure` has started. The latter also passes --quiet, so that rank 0 prints nothing.
constexpr const char* kOneHost = "--one-host";
constexpr const char* kQuiet = "--quiet";

/// Values of the flags. An empty or absent value means that the default applies.
struct BenchFlags {
  CallFlags calls;
  std::optional<int> ranks;
  std::string transport;
  std::string algorithm;
  std::string compression;
  /// True if `mccl bench` has started this rank.
  bool one_host = false;
  std::string plot;  ///< Path of the picture to write; empty for none.
  Options rest;
};

Config config_of(const BenchFlags& flags) {
  Config config = Config::from_environment();
  if (!flags.transport.empty()) config.set("transport", flags.transport);
  if (!flags.algorithm.empty()) config.set("algorithm", flags.algorithm);
  if (!flags.compression.empty()) config.set("compression", flags.compression);
  return config;
}

void check_ranks(Options& options, int ranks, bool one_host, bool all_asked) {
  if (options.root >= ranks) {
    throw InvalidArgument(fmt::format("--root {}: the ranks are 0 to {}", options.root, ranks - 1));
  }
  if (ranks == 1 && std::erase(options.routines, kSendrecv) > 0 && !all_asked)
    throw InvalidArgument("sendrecv needs at least two ranks; give --ranks");
  const std::size_t largest = largest_call(options, ranks);
  const double needed = 2.0 * static_cast<double>(largest) * (one_host ? ranks : 1);
  const auto there = static_cast<double>(memory_bytes());
  if (there > 0 && needed > there) {
    throw InvalidArgument(fmt::format(
        "--sizes: {} needs two buffers of that size in each of {} ranks, {:.1f} GiB in total; this "
        "machine has {:.1f} GiB",
        text_of_size(largest), one_host ? ranks : 1, needed / (1 << 30), there / (1 << 30)));
  }
}

int run_as_rank(const Placement& placement, const Config& config, const Options& options,
                bool one_host) {
  rendezvous::Joined joined = rendezvous::join(placement, config);
  const auto context = Context::create({placement.rank, placement.size, std::move(joined.store),
                                        config, nullptr, std::move(joined.wiring)});
  run_rank(*context, options, one_host || placement.size == 1);
  context->shutdown();
  return kGood;
}

/// Moves the words that end with .json, files of earlier results, out of `flags.calls.routines`.
std::vector<std::string> take_results(BenchFlags& flags) {
  std::vector<std::string>& words = flags.calls.routines;
  const auto is_measured = [](const std::string& word) { return !word.ends_with(".json"); };
  const auto first = std::stable_partition(words.begin(), words.end(), is_measured);
  std::vector<std::string> taken(first, words.end());
  words.erase(first, words.end());
  if (flags.plot.empty() && !taken.empty())
    throw InvalidArgument(fmt::format("{}: only --plot reads earlier results", taken.front()));
  return taken;
}

/// Checks that the picture can be written, and that a routine has sizes to draw.
void check_picture(const BenchFlags& flags) {
  if (flags.plot.empty()) return;
  const bool is_known =
      std::ranges::any_of(std::array{".svg", ".png", ".pdf"},
                          [&](const char* end) { return flags.plot.ends_with(end); });
  if (!is_known)
    throw InvalidArgument("--plot: the name of the picture must end with .svg, .png or .pdf");
  const auto has_no_sizes = [](const std::string& each) {
    return each == "kernels" || each == "barrier";
  };
  const std::vector<std::string>& calls = flags.calls.routines;
  if (!calls.empty() && std::ranges::all_of(calls, has_no_sizes))
    throw InvalidArgument(fmt::format("--plot: {} has no sizes to draw", calls[0]));
  check_writable("--plot", flags.plot);
}

int measure(const BenchFlags& flags, const std::vector<std::string>& arguments) {
  if (flags.calls.routines == std::vector<std::string>{"kernels"}) {
    fmt::print("{}", kernels_text(config_of(flags)));
    return kGood;
  }
  Options options = parse_calls(flags.calls, flags.rest);
  check_writable("--json", options.json);
  check_writable("--csv", options.csv);
  const Config config = config_of(flags);
  const bool all_asked =
      std::ranges::find(flags.calls.routines, "all") != flags.calls.routines.end();
  const std::optional<Placement> placement = find_placement(config, process_environment());
  if (!placement) {
    const int ranks = flags.ranks.value_or(2);
    check_ranks(options, ranks, true, all_asked);
    std::vector<std::string> words = {"bench", kOneHost};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return run_here(ranks, "mccl bench", words, options.overlap);
  }
  if (flags.ranks && *flags.ranks != placement->size) {
    throw InvalidArgument(fmt::format(
        "--ranks {}, but this process is one of {} ranks, according to {}; leave out --ranks",
        *flags.ranks, placement->size, placement->found_by));
  }
  check_ranks(options, placement->size, flags.one_host, all_asked);
  return run_as_rank(*placement, config, options, flags.one_host);
}

int run_bench(BenchFlags flags, const std::vector<std::string>& arguments) {
  std::vector<std::string> results = take_results(flags);
  const bool measures =
      results.empty() || !flags.calls.routines.empty() || !flags.rest.json.empty();
  check_picture(flags);
  if (!flags.plot.empty() && measures && flags.rest.json.empty())
    throw InvalidArgument(
        "--plot: also give --json FILE; the new result is saved there and drawn from it");
  if (measures) {
    const int status = measure(flags, arguments);
    const std::optional<Placement> placement =
        find_placement(config_of(flags), process_environment());
    if (status != kGood || flags.plot.empty() || (placement && placement->rank != 0)) return status;
    // If `mccl bench` has started this rank (--one-host), its parent process draws the picture.
    if (placement && flags.one_host) return status;
    results.insert(results.begin(), flags.rest.json);
  }
  results.insert(results.begin(), flags.plot);
  become_python("mccl bench --plot", "plot", std::move(results));
}

void add_what(CLI::App& app, BenchFlags& flags) {
  add_flags(app, flags.calls,
            "sendrecv, barrier, or all;\nor kernels: the speed of additions on this machine",
            kMostBenchRanks * kMostBenchRanks);
  add_value(app, "-n,--ranks N", flags.ranks, "Processes to start on this machine; default 2",
            integer_between(1, kMostBenchRanks));
  add_value(app, "--transport NAME", flags.transport,
            "auto, tcp, shm or rdma; default: MCCL_TRANSPORT, or auto");
  add_value(app, "--algorithm NAME", flags.algorithm,
            "Algorithm, which must support the calls; default: MCCL_ALGORITHM,\nor auto");
  add_value(app, "--compression CODEC", flags.compression,
            "Codec of sums between machines: auto, fp16, bf16, int8, fp8, fp8_e5m2, int4, topk;\n"
            "default: MCCL_COMPRESSION, or none");
}

/// Adds the flags --NAME, which is the default, and --no-NAME.
void add_switch(CLI::App& app, const std::string& name, const std::string& meaning, bool& value) {
  const std::string default_meaning = meaning + " (default)";
  CLI::Option* on = app.add_flag(fmt::format("--{}", name), default_meaning);
  app.add_flag_callback(
         fmt::format("--no-{}", name), [&value] { value = false; },
         fmt::format("Disable --{}", name))
      ->excludes(on)
      ->option_text(" ");  // Hides the names of the excluded flags from the help.
  on->option_text(" ");
}

void add_how(CLI::App& app, BenchFlags& flags) {
  Options& rest = flags.rest;
  CLI::Option* seconds =
      add_value(app, "--seconds S", rest.seconds,
                "Seconds for each half of a row (out of place, in place); default 0.2",
                number_between(0.0, 3600.0));
  add_value(app, "--iterations N", rest.iterations,
            "Number of timed calls for each half of a row, instead of --seconds",
            integer_between(1, kMostCalls))
      ->excludes(seconds);
  add_value(app, "--warmup N", rest.warmup,
            "Minimum number of calls before the timed calls; default 5",
            integer_between(0, kMostCalls));
  add_switch(app, "check", "Check the first out-of-place and in-place result of each row",
             rest.check);
  app.add_flag("--shared-buffers", rest.shared_buffers,
               "Call with buffers that other ranks of the host read where they lie, as made by\n"
               "mccl.empty() and Context::allocate()");
  app.add_flag("--overlap", rest.overlap, "Also measure how much of each call a computation hides");
  add_switch(app, "bounds", "Measure the upper bounds of this machine", rest.bounds);
  add_value(app, "--json FILE", rest.json, "Write the result to FILE as one JSON object");
  add_value(app, "--csv FILE", rest.csv, "Write the rows to FILE as CSV");
  add_value(app, "--plot FILE", flags.plot,
            "Draw bandwidth and time against size, as .svg, .png or .pdf, of this run\n"
            "(also give --json) and of earlier results, given as names that end with .json");
}

}  // namespace

Command add(CLI::App& program) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App* app = program.add_subcommand("bench", kSummary);
  app->footer(kFooter);
  add_what(*app, *flags);
  add_how(*app, *flags);
  app->add_flag(kOneHost, flags->one_host)->group("");
  app->add_flag(kQuiet, flags->rest.quiet)->group("");
  const auto arguments = std::make_shared<std::vector<std::string>>();
  return {.app = app,
          .run = [flags, arguments] { return run_bench(*flags, *arguments); },
          .arguments = arguments};
}

}  // namespace mccl::cli::bench
