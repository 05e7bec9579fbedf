#include "cli/hosts/session.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/clock.h"
#include "base/value_text.h"
#include "cli/kit/find_program.h"
#include "cli/kit/ssh.h"
#include "mccl/error.h"

namespace mccl::cli::hosts {
namespace {

using namespace std::chrono_literals;

constexpr auto kForEnd = 1s;
constexpr auto kSilence = 8s;

/// Number of open files of each session: standard input, output and error of its process.
constexpr std::size_t kFilesOfSession = 3;
/// Number of other open files: the child's ends of these pipes, for a short time, and files to
/// write.
constexpr std::size_t kOtherFiles = 32;

Process start_shell(const Host& host, bool here, const Reaching& reaching) {
  ProcessPlan plan;
  plan.environment = reaching.environment;
  plan.argv =
      here ? std::vector<std::string>{"sh"}
           : ssh_words(host, SshRole::alone, "none", kSilence, reaching.ssh_arguments, "exec sh");
  const std::string program = plan.argv.front();
  plan.argv.front() = find_program(program, path_of(reaching.environment, "/usr/bin:/bin"));
  if (plan.argv.front().empty())
    throw Error("cannot query hosts: there is no program \"" + program + "\" in PATH");
  return start_process(plan);
}

}  // namespace

void make_room_for_sessions(std::size_t sessions) {
  make_room_for_files(kFilesOfSession * sessions + kOtherFiles,
                      fmt::format("querying {} hosts in parallel", sessions), "query fewer hosts");
}

Session::Session(const Host& host, const Reaching& reaching, Hear hear)
    : host_(host),
      here_(is_here(host)),
      hear_(std::move(hear)),
      reaching_(reaching),
      shell_([this](std::string_view line) { this->hear(line); }, [this] { end_login(); }) {
  start();
}

void Session::start() {
  retry_.begin();
  shell_.begin(start_shell(host_, here_, reaching_));
}

Session::~Session() {
  if (waits_) return;
  shell_.tell_no_more();
  const pid_t process = shell_.id();
  ::kill(-process, SIGTERM);
  const Clock::time_point limit = Clock::now() + kForEnd;
  while (Clock::now() < limit) {
    if (reap(process)) return;
    std::this_thread::sleep_for(5ms);
  }
  kill();
}

void Session::kill() {
  ::kill(-shell_.id(), SIGKILL);
  ::waitpid(shell_.id(), nullptr, 0);
}

void Session::tell(std::string_view text) {
  if (!heard_) told_ += text;
  shell_.tell(text);
}

void Session::watch(Watch& watch) {
  if (waits_ && !retry_.is_due()) {
    watch.at(retry_.next_try());
    return;
  }
  if (waits_) {
    waits_ = false;
    start();
    shell_.tell(told_);
  }
  shell_.watch(watch);
}

void Session::hear(std::string_view line) {
  heard_ = true;
  hear_(line);
}

/// Called when the output has ended. Decides whether a login that failed is repeated.
void Session::end_login() {
  if (heard_ || here_) return;
  shell_.read_complaint();  // ssh has written its error message before it closed its output.
  if (!retry_.tries_again(shell_.complaint())) return;
  kill();
  waits_ = true;
}

std::string Session::error_text() const {
  return shell_.complaint().empty() ? "it ended without a message" : printable(shell_.complaint());
}

std::string Session::complaint() const {
  if (!here_) return explain_ssh(host_, shell_.complaint());
  return shell_.complaint().empty() ? "its shell ended without a message"
                                    : printable(shell_.complaint());
}

}  // namespace mccl::cli::hosts
