#include "cli/hosts/session.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/clock.h"
#include "base/value_text.h"
#include "cli/launch/ssh.h"
#include "mccl/error.h"

namespace mccl::cli::hosts {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLongestComplaint = 8192;
constexpr auto kForEnd = 1s;
constexpr auto kSilence = 8s;

/// Number of open files of each session: standard input, output and error of its process.
constexpr std::size_t kFilesOfSession = 3;
/// Number of other open files: the child's ends of these pipes, for a short time, and files to
/// write.
constexpr std::size_t kOtherFiles = 32;

launch::Process start_shell(const Host& host, bool here, const Reaching& reaching) {
  launch::ProcessPlan plan;
  plan.environment = reaching.environment;
  plan.argv = here ? std::vector<std::string>{"sh"}
                   : launch::ssh_words(host, launch::SshRole::alone, "none", kSilence,
                                       reaching.ssh_arguments, "exec sh");
  const auto path = reaching.environment.find("PATH");
  const std::string program = plan.argv.front();
  plan.argv.front() = launch::find_program(
      program, path == reaching.environment.end() ? "/usr/bin:/bin" : path->second, "");
  if (plan.argv.front().empty())
    throw Error("cannot query hosts: there is no program \"" + program + "\" in PATH");
  return launch::start(plan);
}

}  // namespace

void make_room_for_sessions(std::size_t sessions) {
  launch::make_room_for_files(kFilesOfSession * sessions + kOtherFiles,
                              fmt::format("querying {} hosts in parallel", sessions),
                              "query fewer hosts");
}

Session::Session(const Host& host, const Reaching& reaching, Hear hear)
    : host_(host), here_(launch::is_here(host)), hear_(std::move(hear)), reaching_(reaching) {
  start();
}

void Session::start() {
  retry_.begin();
  process_ = start_shell(host_, here_, reaching_);
}

Session::~Session() {
  if (waits_) return;
  process_.input.close();
  ::kill(-process_.id, SIGTERM);
  const Clock::time_point limit = Clock::now() + kForEnd;
  while (Clock::now() < limit) {
    if (launch::collect(process_.id)) return;
    std::this_thread::sleep_for(5ms);
  }
  ::kill(-process_.id, SIGKILL);
  ::waitpid(process_.id, nullptr, 0);
}

void Session::tell(std::string_view text) {
  if (!heard_) told_ += text;
  unsent_ += text;
  send();
}

void Session::tell_no_more() {
  no_more_ = true;
  send();
}

void Session::watch(launch::Watch& watch) {
  if (waits_ && retry_.is_due()) {
    waits_ = false;
    unsent_ = told_;
    start();
  } else if (waits_) {
    watch.at(retry_.next_try());
    return;
  }
  if (!ended()) watch.on(process_.output.get(), POLLIN, [this] { read_output(); });
  if (process_.error.get() >= 0) watch.on(process_.error.get(), POLLIN, [this] { read_error(); });
  if (!unsent_.empty() && process_.input.get() >= 0)
    watch.on(process_.input.get(), POLLOUT, [this] { send(); });
}

void Session::send() {
  const int input = process_.input.get();
  if (input < 0) return;
  if (!unsent_.empty()) {
    const ssize_t n = ::write(input, unsent_.data(), unsent_.size());
    if (n > 0) unsent_.erase(0, static_cast<std::size_t>(n));
    if (n < 0 && errno != EAGAIN && errno != EINTR) unsent_.clear();
  }
  if (no_more_ && unsent_.empty()) process_.input.close();
}

void Session::read_output() {
  const std::span<char> space = said_.space();
  const ssize_t n = read_some(process_.output.get(), space.data(), space.size());
  if (n < 0) return;
  said_.filled(static_cast<std::size_t>(n));
  std::string_view lines = n == 0 ? said_.take_rest() : said_.take_lines();
  heard_ = heard_ || !lines.empty();
  if (n == 0) process_.output.close();
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    hear_(lines.substr(0, end));
    lines.remove_prefix(end == lines.npos ? lines.size() : end + 1);
  }
  if (n == 0 && !heard_ && !here_) end_login();
}

void Session::end_login() {
  // ssh has written its error message before it closed its output.
  for (std::size_t before = 0; process_.error.get() >= 0; before = complaint_.size()) {
    read_error();
    if (complaint_.size() == before) break;
  }
  if (!retry_.tries_again(complaint_)) return;
  ::kill(-process_.id, SIGKILL);
  ::waitpid(process_.id, nullptr, 0);
  process_ = {};
  complaint_.clear();
  waits_ = true;
}

void Session::read_error() {
  std::array<char, 4096> bytes;
  const ssize_t n = read_some(process_.error.get(), bytes.data(), bytes.size());
  if (n == 0) process_.error.close();
  if (n > 0 && complaint_.size() < kLongestComplaint)
    complaint_.append(bytes.data(), static_cast<std::size_t>(n));
}

std::string Session::error_text() const {
  return complaint_.empty() ? "it ended without a message" : printable(complaint_);
}

std::string Session::complaint() const {
  if (!here_) return launch::explain_ssh(host_, complaint_);
  return complaint_.empty() ? "its shell ended without a message" : printable(complaint_);
}

}  // namespace mccl::cli::hosts
