#include "cli/hosts/setup_run.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/value_text.h"
#include "cli/launch/words.h"
#include "cluster/text.h"
#include "mccl/error.h"
#include "rendezvous/job_key.h"

namespace mccl::cli::hosts {
namespace {

using namespace std::chrono_literals;
using cluster::SetupStep;

constexpr auto kForStep = 30s;
constexpr std::size_t kLongestOutput = 2000;

/// What one host has to do, one after the other.
class Worker {
 public:
  Worker(const Host& host, const Reaching& reaching)
      : name_(launch::text_of(host)),
        token_("mccl-" + rendezvous::make_job_key().substr(0, 16)),
        session_(std::make_unique<Session>(host, reaching,
                                           [this](std::string_view line) { hear(line); })) {
    // Nobody sits there who could be asked for a password.
    session_->tell("sudo() { command sudo -n \"$@\"; }\n");
  }

  void begin(std::size_t step, const std::string& command) {
    step_ = step;
    command_ = command;
    output_.clear();
    status_.reset();
    limit_ = Clock::now() + kForStep;
    session_->tell(
        fmt::format("( {} ) < /dev/null 2>&1; s=$?; echo; echo {} $s\n", command, token_));
  }

  void watch(launch::Watch& watch) {
    session_->watch(watch);
    if (busy()) watch.at(limit_);
  }

  bool busy() const { return step_ && !status_ && !session_->ended() && Clock::now() < limit_; }
  std::optional<std::size_t> step() const { return step_; }
  void forget_step() { step_.reset(); }
  const std::string& name() const { return name_; }
  bool lost() const { return session_->ended(); }
  bool knows_outcome() const { return status_.has_value(); }

  /// Of the step that is over; empty when it is done.
  std::string fault() const {
    if (status_ == 0) return {};
    const std::string said(cluster::trimmed(output_));
    if (status_)
      return fmt::format("{}: \"{}\" ended with status {}: {}", name_, command_, *status_,
                         said.empty() ? "it said nothing" : printable(said));
    if (session_->ended())
      return fmt::format("{}: the connection was lost in \"{}\": {}", name_, command_,
                         session_->complaint());
    return fmt::format("{}: \"{}\" did not end in {} s", name_, command_, kForStep.count());
  }

 private:
  void hear(std::string_view line) {
    if (line.starts_with(token_ + " ")) {
      status_ = static_cast<int>(parse_integer(line.substr(token_.size() + 1)).value_or(-1));
    } else if (output_.size() < kLongestOutput) {
      output_.append(line).push_back('\n');
    }
  }

  const std::string name_;
  const std::string token_;
  std::optional<std::size_t> step_;
  std::string command_;
  std::string output_;
  std::optional<int> status_;
  Clock::time_point limit_;
  std::unique_ptr<Session> session_;
};

class SetupRun {
 public:
  SetupRun(std::span<const Host> hosts, std::span<const SetupStep> steps, const Reaching& reaching,
           launch::Signals& signals, const std::function<void(const std::string&)>& say)
      : hosts_(hosts),
        steps_(steps),
        reaching_(reaching),
        signals_(signals),
        say_(say),
        workers_(hosts.size()) {
    std::set<int> busy;
    for (const SetupStep& step : steps) busy.insert(step.host);
    make_room_for_sessions(busy.size());
    for (const int host : busy) send_worker(host);
  }

  SetupResult run() {
    std::vector<std::size_t> all(steps_.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    work(
        all, [](const SetupStep& step) { return step.command; }, true);
    if (fault_.empty()) return {};
    SetupResult result{.fault = fault_, .undone = unsure_.empty()};
    // Whoever hangs, or is no longer there, undoes nothing: another is sent.
    for (const std::size_t step : unsure_) send_worker(steps_[step].host);
    const std::vector<std::size_t> sure = done_;
    std::vector<std::size_t> back = done_;
    back.insert(back.end(), unsure_.begin(), unsure_.end());
    std::ranges::sort(back, std::ranges::greater());
    done_.clear();
    fault_.clear();
    work(
        back, [](const SetupStep& step) { return step.undo; }, false);
    for (const std::size_t step : sure)
      result.undone = result.undone && std::ranges::find(done_, step) != done_.end();
    return result;
  }

 private:
  void send_worker(int host) {
    const auto place = static_cast<std::size_t>(host);
    workers_[place] = std::make_unique<Worker>(hosts_[place], reaching_);
  }

  template <typename CommandOf>
  void work(const std::vector<std::size_t>& order, CommandOf&& command_of, bool ends_at_fault) {
    std::vector<std::vector<std::size_t>> left(workers_.size());
    for (auto i = order.rbegin(); i != order.rend(); ++i)
      left[static_cast<std::size_t>(steps_[*i].host)].push_back(*i);
    for (;;) {
      bool busy = false;
      for (std::size_t host = 0; host < workers_.size(); ++host) {
        if (!workers_[host]) continue;
        Worker& worker = *workers_[host];
        if (worker.step() && !worker.busy()) settle(worker);
        const bool stop = (ends_at_fault && !fault_.empty()) || worker.lost();
        if (!worker.step() && !stop && !left[host].empty()) {
          const std::size_t step = left[host].back();
          left[host].pop_back();
          say_(fmt::format("{}: {}", worker.name(), command_of(steps_[step])));
          worker.begin(step, command_of(steps_[step]));
        }
        busy = busy || worker.step();
      }
      if (!busy) return;
      wait();
    }
  }

  void settle(Worker& worker) {
    const std::string fault = worker.fault();
    if (fault.empty()) {
      done_.push_back(*worker.step());
    } else {
      if (fault_.empty()) fault_ = fault;
      if (!worker.knows_outcome()) unsure_.push_back(*worker.step());
    }
    worker.forget_step();
  }

  void wait() {
    launch::Watch watch;
    for (const auto& worker : workers_)
      if (worker) worker->watch(watch);
    watch.on(signals_.descriptor(), POLLIN, [this] {
      for (const int number : signals_.take())
        if (number != SIGCHLD && number != SIGWINCH && fault_.empty())
          fault_ = fmt::format("signal {} ({}) ended it", number, ::strsignal(number));
    });
    watch.wait();
  }

  std::span<const Host> hosts_;
  std::span<const SetupStep> steps_;
  const Reaching& reaching_;
  launch::Signals& signals_;
  const std::function<void(const std::string&)>& say_;
  std::vector<std::unique_ptr<Worker>> workers_;  ///< By host; null where nothing is to be done.
  std::vector<std::size_t> done_;
  std::vector<std::size_t> unsure_;  ///< Begun, and perhaps done.
  std::string fault_;
};

}  // namespace

std::string undo_script(std::span<const Host> hosts, std::span<const SetupStep> steps,
                        const std::vector<std::string>& ssh_arguments) {
  std::string text =
      "#!/bin/sh\n# Undoes what mccl config --auto-setup or mccl doctor --fix does: run it as sh "
      "FILE.\nstatus=0\n";
  for (std::size_t i = steps.size(); i-- > 0;) {
    const Host& host = hosts[static_cast<std::size_t>(steps[i].host)];
    std::vector<std::string> words = {"ssh"};
    if (!host.user.empty()) words.insert(words.end(), {"-l", host.user});
    if (host.port != 0) words.insert(words.end(), {"-p", std::to_string(host.port)});
    words.insert(words.end(), ssh_arguments.begin(), ssh_arguments.end());
    words.insert(words.end(), {"--", host.name, steps[i].undo});
    if (launch::is_here(host)) words = {"sh", "-c", steps[i].undo};
    text += fmt::format("{} < /dev/null || status=1\n", launch::command_line(words));
  }
  return text + "exit $status\n";
}

std::string write_undo_script(const std::string& path, const std::string& script) {
  std::string place = path;
  for (int number = 2; std::filesystem::exists(place); ++number)
    place = fmt::format("{}.{}", path, number);
  std::ofstream file(place, std::ios::binary);
  file << script;
  file.close();
  if (!file)
    throw Error(fmt::format("{}: {}; nothing was changed, as it could not be undone", place,
                            std::strerror(errno)));
  ::chmod(place.c_str(), S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH);
  return place;
}

SetupResult run_setup(std::span<const Host> hosts, std::span<const SetupStep> steps,
                      const Reaching& reaching, launch::Signals& signals,
                      const std::function<void(const std::string&)>& say) {
  return SetupRun(hosts, steps, reaching, signals, say).run();
}

}  // namespace mccl::cli::hosts
