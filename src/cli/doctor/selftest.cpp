#include "cli/doctor/selftest.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "cli/kit/process.h"
#include "cli/kit/shell_words.h"
#include "cli/kit/watch.h"
#include "cluster/text.h"
#include "mccl/error.h"

namespace mccl::cli::doctor {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr auto kForTrial = 300s;
constexpr std::size_t kMostOutput = std::size_t{1} << 18;
/// Exit status of a script whose package is not installed.
constexpr int kNotThere = 77;
constexpr int kMostRanks = 8;
/// Time that a process gets to end after SIGTERM, before it is killed.
constexpr auto kForEnd = 10s;
constexpr const char* kResult = "mccl-selftest-result";
constexpr const char* kFirstRank = "[0] ";

struct Face {
  const char* name;
  const char* script;
};

constexpr std::array kFaces = {
    Face{"NumPy", R"py(
import sys
try:
    import numpy as np
    import mccl.distributed as dist
except ImportError as error:
    print(error)
    sys.exit(77)
world = dist.init()
total = world.all_reduce(np.arange(1000, dtype=np.float32) + world.rank)
n = world.size
assert (total == n * np.arange(1000) + n * (n - 1) / 2).all(), total
)py"},
    Face{"torch", R"py(
import sys
try:
    import torch
    import torch.distributed as dist
    import mccl
except ImportError as error:
    print(error)
    sys.exit(77)
dist.init_process_group("mccl")
x = torch.arange(1000, dtype=torch.float32) + dist.get_rank()
dist.all_reduce(x)
n = dist.get_world_size()
assert torch.equal(x, n * torch.arange(1000) + n * (n - 1) / 2), x
dist.destroy_process_group()
)py"},
    Face{"torch on GPUs", R"py(
import sys
try:
    import torch
    import torch.distributed as dist
    import mccl
except ImportError as error:
    print(error)
    sys.exit(77)
if not torch.cuda.is_available():
    print("torch sees no GPU")
    sys.exit(77)
dist.init_process_group("mccl")
gpu = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
x = torch.arange(1000, dtype=torch.float32, device=gpu) + dist.get_rank()
dist.all_reduce(x)
n = dist.get_world_size()
assert torch.equal(x.cpu(), n * torch.arange(1000) + n * (n - 1) / 2), x
dist.destroy_process_group()
)py"},
    Face{"MLX", R"py(
import sys
try:
    import mlx.core as mx
    import mccl.mlx
except ImportError as error:
    print(error)
    sys.exit(77)
group = mccl.mlx.init()
x = mx.distributed.all_sum(mx.arange(1000) + group.rank(), group=group)
n = group.size()
assert mx.array_equal(x, n * mx.arange(1000) + n * (n - 1) // 2), x
)py"},
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A process and its output. Its destructor kills the process.
class Running {
 public:
  Running(const Trial& trial, const hosts::Variables& environment) {
    ProcessPlan plan;
    plan.argv = trial.argv;
    plan.environment = environment;
    process_ = start_process(plan);
    process_.input.close();
  }
  ~Running() {
    if (!over_) ::kill(-process_.id, SIGKILL);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void watch(Watch& watch) {
    for (Descriptor* stream : {&process_.output, &process_.error})
      if (stream->get() >= 0) watch.on(stream->get(), POLLIN, [this, stream] { read(*stream); });
  }
  /// Returns the exit status of the process; empty until it has ended and all its output is read.
  std::optional<int> ended() {
    if (process_.output.get() >= 0 || process_.error.get() >= 0) return {};
    const auto exit = reap(process_.id);
    if (!exit) return {};
    over_ = true;
    return exit->status;
  }
  void end(int signal) { ::kill(-process_.id, signal); }
  /// Stops reading. A process that it has started may still hold the streams open.
  void forget_output() {
    process_.output.close();
    process_.error.close();
  }
  const std::string& output() const { return output_; }

 private:
  void read(Descriptor& stream) {
    std::array<char, 1 << 16> bytes;
    const ssize_t n = read_some(stream.get(), bytes.data(), bytes.size());
    if (n == 0) stream.close();
    if (n > 0) output_.append(bytes.data(), static_cast<std::size_t>(n));
    if (output_.size() > kMostOutput) output_.erase(0, output_.size() - kMostOutput);
  }

  Process process_;
  std::string output_;
  bool over_ = false;
};

Trial bench_of(const std::string& program, const std::string& transport, int ranks,
               const std::string& folder) {
  const std::string name = fmt::format("{}, {} ranks", transport, ranks);
  const std::string file = fmt::format("{}/{}-{}.json", folder, transport, ranks);
  return {name,
          {program, "bench", "all", "--ranks", std::to_string(ranks), "--transport", transport,
           "--sizes", "8,64K,16M", "--seconds", "0.1", "--json", file},
          file};
}

/// Returns a trial in which each host runs the mccl that it has. The first rank prints its figures
/// after its output, because its file may be on another machine.
Trial among(const std::string& program, const Others& others, bool by_rdma) {
  const std::string script = fmt::format(
      "f=$(mktemp) || exit 1\n"
      "for m in {}; do [ -x \"$m\" ] && break; done\n"
      "\"$m\" bench all {}--sizes 8,64K,16M --seconds 0.1 --no-bounds --json \"$f\"\n"
      "s=$?\n"
      "[ -s \"$f\" ] && {{ echo {}; cat \"$f\"; echo; }}\n"
      "rm -f \"$f\"; exit $s",
      command_line(others.programs), by_rdma ? "--transport rdma " : "", kResult);
  Trial trial{.name = by_rdma ? "all hosts, rdma" : "all hosts",
              .argv = {program, "launch"},
              .result_file = "",
              .bound_gbs = by_rdma ? *others.rdma_gbs : others.bound_gbs};
  trial.argv.insert(trial.argv.end(), others.flags.begin(), others.flags.end());
  trial.argv.insert(trial.argv.end(), {"--", "sh", "-c", script});
  return trial;
}

/// Returns the JSON that follows kResult, without the prefix that mccl launch puts before each
/// line. Removes it from `output`.
json result_in(std::string& output) {
  const std::size_t begin = output.find(kResult);
  if (begin == output.npos) return nullptr;
  std::string text;
  for (const std::string_view line :
       cluster::lines_of(std::string_view(output).substr(begin + std::strlen(kResult)))) {
    const bool of_rank = line.starts_with(kFirstRank);
    if (of_rank) text.append(line.substr(std::strlen(kFirstRank))) += '\n';
  }
  json result = json::parse(text, nullptr, false);
  if (result.is_discarded()) return nullptr;
  output.resize(output.rfind('\n', begin) + 1);
  return result;
}

/// Returns the number at `key`, or 0 if there is none. A barrier, for example, has no rate.
double number_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

/// Returns the best possible rate of the transport, in GB/s, as bench measures it.
double bound_of(const Trial& trial, const json& result) {
  const auto found = result.find("bounds");
  if (trial.bound_gbs > 0 || found == result.end() || !found->is_object()) return trial.bound_gbs;
  const json& bounds = *found;
  const bool tcp = result.value("transport", "") == "tcp";
  if (!tcp) return number_at(bounds, "pass_all_gbs");
  return std::max(number_at(bounds, "tcp_one_way_gbs"), number_at(bounds, "tcp_both_ways_gbs"));
}

void add_figures(const Trial& trial, const json& result,
                 std::vector<std::vector<std::string>>& rows) {
  const double bound = bound_of(trial, result);
  const json all = result.value("rows", json::array());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const json& row = all[i];
    const auto bytes = number_at(row, "bytes");
    // Skips the first half of a row if the second half, which is in place, follows. Skips medium
    // sizes.
    const bool again = i + 1 < all.size() && number_at(all[i + 1], "bytes") == bytes &&
                       all[i + 1].value("collective", "") == row.value("collective", "");
    if (again || (bytes > 8 && bytes < (1 << 20))) continue;
    const double busbw = number_at(row, "busbw");
    const bool large = bytes > 8 && busbw > 0;
    rows.push_back({trial.name, row.value("collective", ""), fmt::format("{:.0f}", bytes),
                    fmt::format("{:.1f} us", number_at(row, "time_us")),
                    large ? fmt::format("{:.2f} GB/s", busbw) : "-",
                    large && bound > 0 ? fmt::format("{:.2f} GB/s", bound) : "-",
                    fmt::format("{:.0f}", number_at(row, "wrong"))});
  }
}

std::string_view word_of(Outcome::Kind kind) {
  constexpr std::array<std::string_view, 3> kWords = {"good", "failed", "not there"};
  return kWords[static_cast<std::size_t>(kind)];
}

}  // namespace

std::optional<double> rdma_gbs_of(const cluster::HostFacts& facts) {
  std::optional<double> total;
  for (const cluster::RdmaDevice& device : facts.rdma)
    if (device.state.empty() || device.state == "ACTIVE")
      total = total.value_or(0) + device.mbit_per_s / 8e3;
  return total;
}

std::vector<Trial> selftest_trials(const ThisMachine& machine, const Others& others,
                                   const std::string& folder) {
  std::vector<Trial> trials;
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
  for (const Face& face : kFaces) {
    if (machine.python.empty()) break;
    trials.push_back(
        {face.name,
         {machine.program, "launch", "-n", "2", "--", machine.python, "-c", face.script},
         ""});
  }
  if (!others.flags.empty()) trials.push_back(among(machine.program, others, false));
  if (!others.flags.empty() && others.rdma_gbs)
    trials.push_back(among(machine.program, others, true));
  return trials;
}

Outcome run_trial(const Trial& trial, const hosts::Variables& environment, Signals& signals) {
  const Clock::time_point begin = Clock::now();
  Outcome outcome;
  Running running(trial, environment);
  Clock::time_point limit = begin + kForTrial;
  bool told = false;
  std::optional<int> status;
  while (!(status = running.ended())) {
    Watch watch;
    running.watch(watch);
    watch.on(signals.descriptor(), POLLIN, [&] { signals.heed(); });
    watch.at(limit);
    watch.wait();
    if (Clock::now() < limit) continue;
    running.end(told ? SIGKILL : SIGTERM);
    if (told) running.forget_output();
    told = true;
    limit = Clock::now() + kForEnd;
  }
  outcome.status = *status;
  outcome.seconds = seconds_between(begin, Clock::now());
  outcome.output = running.output();
  if (outcome.status == 0) outcome.kind = Outcome::Kind::good;
  if (outcome.status == kNotThere) outcome.kind = Outcome::Kind::not_there;
  if (!trial.result_file.empty())
    outcome.result = json::parse(read_file(trial.result_file), nullptr, false);
  if (trial.result_file.empty()) outcome.result = result_in(outcome.output);
  if (outcome.result.is_discarded()) outcome.result = nullptr;
  return outcome;
}

std::string text_of(const std::vector<Trial>& trials, const std::vector<Outcome>& outcomes) {
  std::vector<std::vector<std::string>> rows = {{"trial", "outcome", "seconds"}};
  std::vector<std::vector<std::string>> figures = {
      {"trial", "collective", "bytes", "time", "busbw", "bound", "wrong"}};
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    rows.push_back({trials[i].name, std::string(word_of(outcomes[i].kind)),
                    fmt::format("{:.1f}", outcomes[i].seconds)});
    if (outcomes[i].result.is_object()) add_figures(trials[i], outcomes[i].result, figures);
  }
  return cluster::table_text(rows) + "\n" + cluster::table_text(figures);
}

json json_of(const std::vector<Trial>& trials, const std::vector<Outcome>& outcomes) {
  json list = json::array();
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    list.push_back({{"name", trials[i].name},
                    {"outcome", word_of(outcomes[i].kind)},
                    {"status", outcomes[i].status},
                    {"seconds", outcomes[i].seconds},
                    {"command", trials[i].argv},
                    {"output", outcomes[i].output},
                    {"result", outcomes[i].result}});
  }
  return list;
}

}  // namespace mccl::cli::doctor
