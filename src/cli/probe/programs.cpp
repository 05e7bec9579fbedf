#include "cli/probe/programs.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <utility>

#include "base/environment.h"
#include "cli/kit/find_program.h"
#include "cli/kit/process.h"
#include "cli/kit/watch.h"
#include "cluster/read_facts.h"

namespace mccl::cli::probe {
namespace {

using namespace std::chrono_literals;

constexpr auto kForProgram = 15s;
constexpr std::size_t kMostOutput = std::size_t{1} << 20;

void note_timeout(cluster::HostFacts& facts, const std::string& program) {
  cluster::keep_odd(facts,
                    {.id = "program-hangs",
                     .severity = cluster::Severity::warning,
                     .what = fmt::format("{} does not end", program),
                     .where = facts.host,
                     .why = "the information that it provides is missing below",
                     .cure = fmt::format("run {} there, and find what it waits for", program)});
}

}  // namespace

Programs::Programs(Clock::time_point deadline, std::function<void(const std::string&)> busy)
    : deadline_(deadline), busy_(std::move(busy)), environment_(process_environment()) {}

std::string Programs::find(const std::string& program) const {
  return find_program(program, path_of(environment_, "/usr/bin:/bin:/usr/sbin:/sbin"));
}

std::string Programs::output_of(cluster::HostFacts& facts, std::vector<std::string> argv) const {
  return run(facts, std::move(argv)).output;
}

bool Programs::succeeds(cluster::HostFacts& facts, std::vector<std::string> argv) const {
  return run(facts, std::move(argv)).good;
}

Programs::Ended Programs::run(cluster::HostFacts& facts, std::vector<std::string> argv) const {
  const std::string name = argv.front();
  argv.front() = find(name);
  if (argv.front().empty() || Clock::now() >= deadline_) return {};
  busy_(name);
  ProcessPlan plan;
  plan.argv = std::move(argv);
  plan.environment = environment_;
  Process process = start_process(plan);
  process.input.close();
  process.error.close();
  Ended ended;
  const Clock::time_point limit = std::min(Clock::now() + kForProgram, deadline_);
  while (process.output.get() >= 0 && Clock::now() < limit && ended.output.size() < kMostOutput) {
    Watch watch;
    watch.on(process.output.get(), POLLIN, [&] {
      std::array<char, 1 << 16> bytes;
      const ssize_t n = read_some(process.output.get(), bytes.data(), bytes.size());
      if (n == 0) process.output.close();
      if (n > 0) ended.output.append(bytes.data(), static_cast<std::size_t>(n));
    });
    watch.at(limit);
    watch.wait();
  }
  if (process.output.get() >= 0) {
    if (ended.output.size() < kMostOutput) note_timeout(facts, name);
    // The process group exists only once the child has created it, so the child is also killed by
    // its own id.
    ::kill(process.id, SIGKILL);
    ::kill(-process.id, SIGKILL);
  }
  int status = 0;
  ::waitpid(process.id, &status, 0);
  ended.good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return ended;
}

}  // namespace mccl::cli::probe
