#include "cli/launch/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/coding.h"
#include "base/environment.h"
#include "cli/bench/bounds.h"
#include "cli/bench/report.h"
#include "cli/bench/routine.h"
#include "cli/bench/trial.h"
#include "cli/command.h"
#include "cli/kit/file.h"
#include "cli/kit/program.h"
#include "cli/kit/quantity.h"
#include "mccl/error.h"

namespace mccl::cli::bench {
namespace {

constexpr std::chrono::seconds kGraceHere{2};

/// Shown as the algorithm of sendrecv, which is not a collective.
constexpr std::string_view kMessages = "messages";

class Run {
 public:
  Run(Context& context, const Options& options, bool one_host)
      : options_(options),
        group_(context.world()),
        metrics_(context.metrics()),
        speaks_(context.rank() == 0 && !options.quiet),
        a_(memory(context, options)),
        b_(memory(context, options)) {
    result_.setup = {MCCL_VERSION,
                     cpu_name(),
                     core_count(),
                     context.size(),
                     one_host,
                     context.config().transport,
                     context.config().algorithm,
                     context.config().compression,
                     options.shared_buffers};
  }

  Result measure() {
    print(setup_text(result_.setup));
    if (options_.bounds) {
      progress("measuring the bounds of this machine");
      result_.bounds = measure_bounds(*group_, result_.setup.one_host);
      print(bounds_text(*result_.bounds, result_.setup.ranks));
    }
    for (const Routine routine : options_.routines) {
      print(heading(routine, may_be_rounded(routine)));
      if (routine == Routine::barrier) {
        measure_row(routine, 0);
      } else {
        for (const std::size_t size : options_.sizes) measure_row(routine, size);
      }
    }
    progress("");
    print(sent_text(result_.rows, result_.setup.compression));
    print(overlap_text(result_.rows));
    return std::move(result_);
  }

 private:
  void print(const std::string& text) const {
    if (!speaks_) return;
    progress("");
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
      throw Error(fmt::format("cannot write standard output: {}", std::strerror(errno)));
  }
  void progress(const std::string& text) const {
    if (shows_progress_) fmt::print(stderr, "\r\x1b[K{}", text);
  }

  void measure_row(Routine routine, std::size_t size) {
    const RoutineInfo& info = info_of(routine);
    Row row;
    row.routine = routine;
    row.shape = shape_of(routine, size, options_.dtype, group_->size());
    row.dtype = options_.dtype;
    if (info.reduces) row.op = options_.op.kind;
    if (info.rooted) row.root = options_.root;
    for (const bool in_place : {false, true}) {
      if (!(in_place ? info.in_place : info.out_of_place)) continue;
      const Trial trial(*group_, routine, row.shape, options_, in_place, may_be_rounded(routine),
                        a_, b_);
      const std::string algorithm = algorithm_of(routine, trial);
      if (is_wanted(algorithm)) {
        auto& half = in_place ? row.in_place : row.out_of_place;
        half = measure_half(row, trial, in_place);
        half->algorithm = algorithm;
        if (options_.overlap && row.shape.bytes > 0)
          half->overlap = measure_overlap(*group_, trial, half->timing.time_us, options_);
      } else {
        row.instead = algorithm;
      }
    }
    if (row.instead.empty() && may_be_rounded(routine)) row.sent = measure_sent(row);
    print(row_text(row));
    result_.rows.push_back(row);
  }

  bool may_be_rounded(Routine routine) const {
    return result_.setup.compression != "none" &&
           may_be_coded(routine, options_.dtype, options_.op.kind);
  }

  /// Makes the call once. All ranks get the same result.
  std::string algorithm_of(Routine routine, const Trial& trial) const {
    trial.fill();
    meet(*group_);
    trial.run();
    return std::string(routine == kSendrecv ? kMessages : metrics_->algorithm_of(routine));
  }

  /// True if the requested algorithm ran, or if none was requested. Also true for sendrecv and in a
  /// group of one rank, where there are no algorithms to choose from.
  bool is_wanted(std::string_view algorithm) const {
    return result_.setup.algorithm == "auto" || result_.setup.algorithm == algorithm ||
           algorithm == kMessages || result_.setup.ranks == 1;
  }

  static Memory memory(Context& context, const Options& options) {
    const std::size_t bytes = largest_call(options, context.size());
    return options.shared_buffers ? Memory(context.allocate(bytes), bytes) : Memory(bytes);
  }

  Measurement measure_half(const Row& row, const Trial& trial, bool in_place) {
    progress(fmt::format("{} {} {}", info_of(row.routine).name, text_of_size(row.shape.bytes),
                         in_place ? "in place" : "out of place"));
    const bool rounded = may_be_rounded(row.routine);
    Measurement measured;
    trial.fill();
    meet(*group_);
    if (options_.check && row.shape.bytes > 0) {
      trial.run();
      if (rounded) {
        measured.error = largest(*group_, trial.error());
      } else {
        measured.wrong = sum(*group_, trial.wrong());
      }
    }
    measured.timing = bench::measure(
        *group_, [&trial] { trial.run(); }, options_);
    const double seconds = measured.timing.time_us * 1e-6;
    measured.algbw_gbs = static_cast<double>(row.shape.bytes) / std::max(seconds, 1e-12) / 1e9;
    measured.busbw_gbs = measured.algbw_gbs * bus_factor(row.routine, group_->size());
    return measured;
  }

  Sent measure_sent(const Row& row) {
    const Trial trial(*group_, row.routine, row.shape, options_, false, true, a_, b_);
    trial.fill();
    const auto sent_by = [&](const auto& call) {
      const std::uint64_t before = metrics_->summary().total_bytes_sent;
      call();
      const std::uint64_t after = metrics_->summary().total_bytes_sent;
      return static_cast<std::uint64_t>(largest(*group_, static_cast<double>(after - before)));
    };
    Sent sent;
    sent.rounded = sent_by([&] { trial.run(); });
    sent.exact = sent_by([&] { trial.run(kExact); });
    return sent;
  }

  const Options& options_;
  std::shared_ptr<Group> group_;
  std::shared_ptr<Metrics> metrics_;
  const bool speaks_;
  const bool shows_progress_ = speaks_ && ::isatty(STDERR_FILENO) == 1;
  Memory a_;
  Memory b_;
  Result result_;
};

}  // namespace

void run_rank(Context& context, const Options& options, bool one_host) {
  Result result = Run(context, options, one_host).measure();
  meet(*context.world());
  result.costs = context.costs();
  if (context.rank() != 0) return;
  if (!options.json.empty()) write_file(options.json, to_json(result));
  if (!options.csv.empty()) write_file(options.csv, to_csv(result));
  if (const std::string calls = calls_refused(result.rows); !calls.empty())
    throw Error(fmt::format("--algorithm {} does not support {}; these calls were not measured",
                            result.setup.algorithm, calls));
  const std::uint64_t wrong = wrong_elements(result.rows);
  if (wrong > 0) {
    throw CorruptionError(fmt::format(
        "{} wrong elements; run with --algorithm direct to see whether the algorithm is at fault",
        wrong));
  }
}

int run_here(int ranks, const std::string& command, const std::vector<std::string>& arguments,
             bool overlaps) {
  launch::RunOptions options;
  options.command = command;
  options.inherited = process_environment();
  // An inherited MCCL_HOSTFILE lists the ranks of an outer job, not those that are started here.
  options.inherited.erase("MCCL_HOSTFILE");
  options.inherits_streams = true;
  options.grace = kGraceHere;
  // A rank drives its transports with one thread, but other threads help it to encrypt, and its
  // progress thread advances calls while the caller computes.
  const auto encryption = options.inherited.find("MCCL_ENCRYPTION");
  const bool encrypts = encryption != options.inherited.end() && encryption->second == "on";
  options.bind_to = encrypts || overlaps ? launch::BindTo::share : launch::BindTo::core;
  launch::JobRequest request;
  request.program = {this_program().string()};
  request.program.insert(request.program.end(), arguments.begin(), arguments.end());
  request.hosts = {Host{}};
  request.ranks_per_host = ranks;
  const launch::Job job = launch::plan_job(request, launch::key_of(options.inherited));
  const launch::Ended ended = launch::run(job, options);
  if (ended.signal != 0) {
    std::signal(ended.signal, SIG_DFL);
    std::raise(ended.signal);
  }
  return ended.status == kGood ? kGood : kFailed;
}

}  // namespace mccl::cli::bench
