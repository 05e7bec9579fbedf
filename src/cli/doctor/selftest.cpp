#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/environment.h"
#include "base/first_line.h"
#include "base/json_text.h"
#include "base/value_text.h"
#include "cli/doctor/report.h"
#include "cli/kit/dialogue.h"
#include "cli/kit/file.h"
#include "cli/kit/program.h"
#include "cluster/read_facts.h"
#include "mccl/error.h"

namespace mccl::cli::doctor {
namespace {

using namespace std::chrono_literals;
using cluster::value_at;
using nlohmann::json;

constexpr auto kForTrial = 300s;
constexpr std::size_t kMostOutput = std::size_t{1} << 18;
/// Exit status of a script if a package or GPU is missing.
constexpr int kNotThere = 77;
constexpr int kMostRanks = 8;
/// Time between SIGTERM and SIGKILL when a trial is stopped.
constexpr auto kForEnd = 10s;
constexpr const char* kResult = "mccl-selftest-result";
constexpr const char* kFirstRank = "[0] ";

/// Beginning of each script. It exits with kNotThere if the framework is not installed.
constexpr const char* kImports = R"py(
import sys
try:
    {}
except ImportError as error:
    print(error)
    sys.exit(77)
)py";

constexpr const char* kTorchSum = R"py(
dist.init_process_group("mccl")
device = torch.device({})
x = torch.arange(1000, dtype=torch.float32, device=device) + dist.get_rank()
dist.all_reduce(x)
n = dist.get_world_size()
assert torch.equal(x.cpu(), n * torch.arange(1000) + n * (n - 1) / 2), x
dist.destroy_process_group()
)py";

/// The Python interfaces of MCCL, each with a script that tests it.
std::vector<std::pair<std::string, std::string>> faces() {
  const auto with_imports = [](const char* imports) {
    return fmt::format(fmt::runtime(kImports), imports);
  };
  const std::string torch = with_imports("import torch, mccl; import torch.distributed as dist");
  return {
      {"NumPy", with_imports("import numpy as np; import mccl.distributed as dist") + R"py(
world = dist.init()
total = world.all_reduce(np.arange(1000, dtype=np.float32) + world.rank)
n = world.size
assert (total == n * np.arange(1000) + n * (n - 1) / 2).all(), total
)py"},
      {"torch", torch + fmt::format(fmt::runtime(kTorchSum), "'cpu'")},
      {"torch on GPUs", torch + R"py(
if not torch.cuda.is_available():
    print("torch sees no GPU")
    sys.exit(77)
)py" + fmt::format(fmt::runtime(kTorchSum), "'cuda', dist.get_rank() % torch.cuda.device_count()")},
      {"MLX", with_imports("import mlx.core as mx; import mccl.mlx") + R"py(
group = mccl.mlx.init()
x = mx.distributed.all_sum(mx.arange(1000) + group.rank(), group=group)
n = group.size()
assert mx.array_equal(x, n * mx.arange(1000) + n * (n - 1) // 2), x
)py"},
  };
}

SelftestCase bench_of(const std::string& program, const std::string& transport, int ranks,
                      const std::string& folder) {
  const std::string name = fmt::format("{}, {} ranks", transport, ranks);
  const std::string file = fmt::format("{}/{}-{}.json", folder, transport, ranks);
  return {name,
          {program, "bench", "all", "--ranks", std::to_string(ranks), "--transport", transport,
           "--sizes", "8,64K,16M", "--seconds", "0.1", "--json", file},
          file};
}

/// Each rank runs the mccl that its own host has reported. If there is none, it runs the file that
/// has the path of this machine's mccl. The first rank prints its JSON result, because the file may
/// be on another machine.
SelftestCase among(const std::string& program, const Others& others, bool by_rdma) {
  const std::string script = fmt::format(
      "f=$(mktemp) || exit 1\n"
      "shift \"$MCCL_RANK\"\n"
      "for m in \"$1\" {}; do [ -x \"$m\" ] && break; done\n"
      "\"$m\" bench all {}--sizes 8,64K,16M --seconds 0.1 --no-bounds --json \"$f\"\n"
      "s=$?\n"
      "[ -s \"$f\" ] && {{ echo {}; cat \"$f\"; echo; }}\n"
      "rm -f \"$f\"; exit $s",
      shell_word(program), by_rdma ? "--transport rdma " : "", kResult);
  SelftestCase trial{.name = by_rdma ? "all hosts, rdma" : "all hosts",
                     .argv = {program, "launch"},
                     .result_file = "",
                     .bound_gbs = by_rdma ? *others.rdma_gbs : others.bound_gbs};
  trial.argv.insert(trial.argv.end(), others.flags.begin(), others.flags.end());
  trial.argv.insert(trial.argv.end(), {"--", "sh", "-c", script, "sh"});
  trial.argv.insert(trial.argv.end(), others.programs.begin(), others.programs.end());
  return trial;
}

/// Null if the text is not JSON, or is nested too deep.
json parse_result(std::string_view text) {
  try {
    return parse_json(text, "a trial", "the JSON that mccl bench writes");
  } catch (const InvalidArgument&) {
    return nullptr;
  }
}

/// In GB/s: the trial's own bound, or the one that mccl bench measured for the transport.
double bound_of(const SelftestCase& trial, const json& result) {
  const auto found = result.find("bounds");
  if (trial.bound_gbs > 0 || found == result.end() || !found->is_object()) return trial.bound_gbs;
  const json& bounds = *found;
  const bool tcp = value_at<std::string>(result, "transport") == "tcp";
  if (!tcp) return value_at<double>(bounds, "pass_all_gbs");
  return std::max(value_at<double>(bounds, "tcp_one_way_gbs"),
                  value_at<double>(bounds, "tcp_both_ways_gbs"));
}

constexpr std::string_view kTrialFailed = "failed";

struct Outcome {
  std::string_view word = kTrialFailed;
  int status = 0;
  double seconds = 0;
  std::string output;  ///< At most the last kMostOutput bytes of the trial's output.
  json result;
};

Outcome run_case(const SelftestCase& trial, const std::map<std::string, std::string>& environment,
                 Signals& signals) {
  const Clock::time_point begin = Clock::now();
  const ProcessPlan plan{.argv = trial.argv, .environment = environment};
  const Captured captured = capture(
      plan, {.time = begin + kForTrial, .grace = kForEnd, .bytes = kMostOutput}, true, &signals);
  Outcome outcome{.status = captured.status,
                  .seconds = seconds_between(begin, Clock::now()),
                  .output = captured.output,
                  .result = {}};
  if (outcome.status == 0) outcome.word = "good";
  if (outcome.status == kNotThere) outcome.word = "not available";
  outcome.result = trial.result_file.empty() ? result_in(outcome.output)
                                             : parse_result(contents_of(trial.result_file));
  return outcome;
}

std::string text_of(const std::vector<SelftestCase>& trials, const std::vector<Outcome>& outcomes) {
  cluster::TableRows rows = {{"trial", "outcome", "seconds"}};
  cluster::TableRows figures = {
      {"trial", "collective", "bytes", "time", "busbw", "bound", "wrong"}};
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    rows.push_back({trials[i].name, std::string(outcomes[i].word),
                    fmt::format("{:.1f}", outcomes[i].seconds)});
    std::ranges::move(figures_of(trials[i], outcomes[i].result), std::back_inserter(figures));
  }
  return cluster::table_text(rows) + "\n" + cluster::table_text(figures);
}

json json_of(const std::vector<SelftestCase>& trials, const std::vector<Outcome>& outcomes) {
  json list = json::array();
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    list.push_back({{"name", trials[i].name},
                    {"outcome", outcomes[i].word},
                    {"status", outcomes[i].status},
                    {"seconds", outcomes[i].seconds},
                    {"command", trials[i].argv},
                    {"output", outcomes[i].output},
                    {"result", outcomes[i].result}});
  }
  return list;
}

/// Empty if no hosts were named.
std::vector<std::string> flags_of_launch(const WhichHosts& which) {
  std::vector<std::string> words;
  if (!which.hostfile.empty()) words = {"--hostfile", which.hostfile};
  if (!which.hosts.empty()) words = {"--hosts", which.hosts};
  if (words.empty()) return words;
  if (!which.user.empty()) words.insert(words.end(), {"--user", which.user});
  for (const std::string& word : which.ssh_arguments) words.push_back("--ssh-arg=" + word);
  return words;
}

/// The rate of a pair is that of its fastest path. 0 if no rate was measured.
double slowest_pair(const Report& report) {
  std::map<std::pair<int, int>, double> best;
  for (const cluster::InterfacePath& path : report.paths) {
    double& rate = best[std::minmax(path.from.host, path.to.host)];
    rate = std::max(rate, path.bytes_per_s / 1e9);
  }
  double slowest = 0;
  for (const auto& [pair, rate] : best)
    if (rate > 0 && (slowest == 0 || rate < slowest)) slowest = rate;
  return slowest;
}

Others others_of(const WhichHosts& which, const std::vector<Host>& entries, const Report& report) {
  Others others{.flags = flags_of_launch(which),
                .programs = {},
                .bound_gbs = slowest_pair(report),
                .rdma_gbs = {}};
  for (const Host& entry : entries) {
    const auto asked = std::ranges::find_if(report.asked, [&](const hosts::Asked& each) {
      return text_of(each.host) == text_of(entry);
    });
    others.programs.insert(others.programs.end(), static_cast<std::size_t>(entry.slots.value_or(1)),
                           asked == report.asked.end() ? "" : asked->facts.mccl);
  }
  bool all_have_rdma = true;
  for (const hosts::Asked& asked : report.asked) {
    const auto rdma = rdma_gbs_of(asked.facts);
    all_have_rdma = all_have_rdma && rdma.has_value();
    if (rdma) others.rdma_gbs = std::min(*rdma, others.rdma_gbs.value_or(*rdma));
  }
  if (!all_have_rdma) others.rdma_gbs.reset();
  return others;
}

ThisMachine this_machine(const Report& report,
                         const std::map<std::string, std::string>& environment) {
  ThisMachine machine{.program = this_program().string(),
                      .python = find_python(path_of(environment)),
                      .cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency())),
                      .rdma_gbs = {}};
  for (const hosts::Asked& asked : report.asked)
    if (is_here(asked.host)) machine.rdma_gbs = rdma_gbs_of(asked.facts);
  return machine;
}

}  // namespace

/// The JSON follows kResult.
json result_in(std::string& output) {
  const std::size_t begin = output.find(kResult);
  if (begin == output.npos) return nullptr;
  std::string text;
  for (const std::string_view line :
       cluster::lines_of(std::string_view(output).substr(begin + std::strlen(kResult)))) {
    const bool of_rank = line.starts_with(kFirstRank);
    if (of_rank) text.append(line.substr(std::strlen(kFirstRank))) += '\n';
  }
  json result = parse_result(text);
  if (!result.is_null()) output.resize(output.rfind('\n', begin) + 1);
  return result;
}

cluster::TableRows figures_of(const SelftestCase& trial, const json& result) {
  cluster::TableRows figures;
  const auto rows = result.is_object() ? result.find("rows") : result.end();
  if (rows == result.end() || !rows->is_array()) return figures;
  const double bound = bound_of(trial, result);
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const json& row = (*rows)[i];
    // Some values may be null, such as the rate of a barrier. They count as 0.
    const auto bytes = value_at<double>(row, "bytes");
    const auto collective = value_at<std::string>(row, "collective");
    // Shows no sizes between 8 bytes and 1 MiB. If both halves of a row were measured, shows only
    // the in-place half.
    const bool again = i + 1 < rows->size() && value_at<double>((*rows)[i + 1], "bytes") == bytes &&
                       value_at<std::string>((*rows)[i + 1], "collective") == collective;
    if (again || (bytes > 8 && bytes < (1 << 20))) continue;
    const auto busbw = value_at<double>(row, "busbw");
    const bool large = bytes > 8 && busbw > 0;
    figures.push_back({trial.name, printable(collective), fmt::format("{:.0f}", bytes),
                       fmt::format("{:.1f} us", value_at<double>(row, "time_us")),
                       large ? fmt::format("{:.2f} GB/s", busbw) : "-",
                       large && bound > 0 ? fmt::format("{:.2f} GB/s", bound) : "-",
                       fmt::format("{:.0f}", value_at<double>(row, "wrong"))});
  }
  return figures;
}

std::optional<double> rdma_gbs_of(const cluster::HostFacts& facts) {
  std::optional<double> total;
  for (const cluster::RdmaDevice& device : facts.rdma)
    if (device.state.empty() || device.state == "ACTIVE")
      total = total.value_or(0) + device.mbit_per_s / 8e3;
  return total;
}

std::vector<SelftestCase> selftest_cases(const ThisMachine& machine, const Others& others,
                                         const std::string& folder) {
  std::vector<SelftestCase> trials;
  for (const char* transport : {"shm", "tcp"}) {
    trials.push_back(bench_of(machine.program, transport, 2, folder));
    if (machine.cores > 2)
      trials.push_back(
          bench_of(machine.program, transport, std::min(machine.cores, kMostRanks), folder));
  }
  if (machine.rdma_gbs) {
    trials.push_back(bench_of(machine.program, "rdma", 2, folder));
    trials.back().bound_gbs = *machine.rdma_gbs;
  }
  for (const auto& [name, script] : faces()) {
    if (machine.python.empty()) break;
    trials.push_back(
        {name, {machine.program, "launch", "-n", "2", "--", machine.python, "-c", script}, ""});
  }
  if (!others.flags.empty()) trials.push_back(among(machine.program, others, false));
  if (!others.flags.empty() && others.rdma_gbs)
    trials.push_back(among(machine.program, others, true));
  return trials;
}

bool run_selftest(const WhichHosts& which, const std::vector<Host>& entries, const Report& report,
                  json all, const std::string& output, Signals& signals) {
  const auto environment = process_environment();
  const TemporaryFolder folder("mccl-selftest");
  const std::vector<SelftestCase> trials = selftest_cases(
      this_machine(report, environment), others_of(which, entries, report), folder.path());
  std::vector<Outcome> outcomes;
  for (const SelftestCase& trial : trials) {
    fmt::print(stderr, "mccl doctor: {} of {}: {}\n", outcomes.size() + 1, trials.size(),
               trial.name);
    outcomes.push_back(run_case(trial, environment, signals));
  }
  fmt::print("\n{}", text_of(trials, outcomes));
  all["selftest"] = json_of(trials, outcomes);
  write_file(output, cluster::dumped(all));
  fmt::print("\n{} contains all results: attach this file to a bug report\n", output);
  return std::ranges::find(outcomes, kTrialFailed, &Outcome::word) == outcomes.end();
}

}  // namespace mccl::cli::doctor
