#include "cli/hosts/setup_run.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>

#include "base/clock.h"
#include "base/value_text.h"
#include "cli/kit/dialogue.h"
#include "cli/kit/program.h"
#include "mccl/error.h"
#include "rendezvous/connections/proof.h"

namespace mccl::cli::hosts {
namespace {

using namespace std::chrono_literals;
using cluster::SetupStep;

constexpr std::chrono::seconds kForStep = 30s;
constexpr std::chrono::seconds kRenewal = 1s;
constexpr std::size_t kNoStep = std::string::npos;
constexpr std::size_t kLongestOutput = 2000;

/// A script for a host, and the step that it carries out or undoes.
struct HostJob {
  std::size_t host = 0;
  std::string what;  ///< Description for the user.
  std::string script;
  std::size_t step = kNoStep;
  std::chrono::seconds limit = kForStep;
};

/// A shell on one host that runs one HostJob after another.
struct HostShell {
  HostShell(const Host& on, const Reaching& reaching)
      : host(on),
        session([this, &reaching] { return start_shell(host, reaching); },
                [this](std::string_view line) { hear(line); }) {
    // There is no terminal, so sudo must not ask for a password.
    session.send("sudo() { command sudo -n \"$@\"; }\n");
  }

  void begin(const HostJob& next) {
    job = next;
    output.clear();
    status.reset();
    limit = Clock::now() + job->limit;
    session.send(
        fmt::format("( {} ) < /dev/null 2>&1; s=$?; echo; echo {} $s\n", job->script, token));
  }
  void hear(std::string_view line) {
    if (line.starts_with(token + " ")) {
      status = static_cast<int>(parse_integer(line.substr(token.size() + 1)).value_or(-1));
    } else if (output.size() < kLongestOutput) {
      output.append(line).push_back('\n');
    }
  }

  bool busy() const { return job && !status && !session.ended() && Clock::now() < limit; }
  bool is_usable() const { return !session.ended() && !hung; }
  /// How the current job failed. Empty if it succeeded. Valid once busy() is false.
  std::string fault() const {
    if (status == 0) return {};
    const std::string said(trimmed(output));
    if (status)
      return fmt::format("{}: \"{}\" ended with status {}: {}", name, job->what, *status,
                         said.empty() ? "it printed nothing" : printable(said));
    if (session.ended())
      return fmt::format("{}: the connection was lost during \"{}\": {}", name, job->what,
                         explain_ssh(host, session.complaint()));
    return fmt::format("{}: \"{}\" did not end in {} s", name, job->what, job->limit.count());
  }

  const Host& host;
  const std::string name = text_of(host);
  const std::string token = "mccl-" + rendezvous::make_random_name(16);
  std::optional<HostJob> job = {};
  bool hung = false;  ///< True if a job did not end in time.
  std::string output = {};
  std::optional<int> status = {};
  Clock::time_point limit = {};
  Dialogue session;
};

/// Scripts of a host's guard (see setup_run.h). Its folder has a file `undecided`, which the
/// session renames to `kept`, or the guard to `reverted`; the first rename decides. A guard that
/// finds no `kept` undoes the steps, even if /tmp is full or has been emptied.
class Guard {
 public:
  /// Starts a process that survives the session, and undoes the steps if it is not renewed for
  /// `limit`. It touches its file `waits`, which names the host's network namespace, because
  /// containers may share /tmp. Fails while the guard of another set-up waits.
  std::string start(std::size_t host, const std::string& undo, std::chrono::seconds limit) const {
    return fmt::format(
        "me=$(readlink /proc/self/ns/net); for w in $(find /tmp/{3}*/waits -type f -user $(id -u) "
        "-mmin -1 ! -path '*{4}*' 2> /dev/null); do "
        "if [ \"$(cat \"$w\")\" = \"$me\" ] && [ -e \"${{w%waits}}undecided\" ]; then "
        "echo another set-up of this host is not confirmed yet; exit 1; fi; done; "
        "mkdir -m 700 {0} && echo \"$me\" > {0}/waits && : > {0}/undecided && {{ "
        "( trap '' HUP INT TERM; left={1}; while [ $left -gt 0 ] && [ -e {0}/undecided ]; do "
        "sleep 1; left=$((left - 1)); touch {0}/waits; "
        "if [ -e {0}/alive ]; then rm -f {0}/alive; left={1}; fi; done; "
        "mv {0}/undecided {0}/reverted; "
        "if [ ! -e {0}/kept ]; then {2}; rm -f {0}/waits; sleep 60; fi; rm -rf {0} "
        ") > /dev/null 2>&1 & }}",
        folder_of(host), limit.count(), undo, cluster::kGuardPrefix, token_);
  }
  std::string renew(std::size_t host) const {
    return fmt::format("[ -e {0}/undecided ] && touch {0}/alive", folder_of(host));
  }
  /// Fails if the guard stopped waiting before or during the command.
  std::string guarded(std::size_t host, const std::string& command) const {
    return fmt::format("{} && {{ {}; }} && [ -e {}/undecided ]", renew(host), command,
                       folder_of(host));
  }
  /// Also succeeds if the guard has begun to undo all steps.
  std::string undoing(std::size_t host, const std::string& undo) const {
    return fmt::format("touch {0}/alive; {{ {1}; }} || [ -e {0}/reverted ]", folder_of(host), undo);
  }
  /// Fails if the guard has begun to undo the steps, or does not exist.
  std::string stop(std::size_t host) const {
    return fmt::format("[ -e {0}/kept ] || mv {0}/undecided {0}/kept", folder_of(host));
  }

 private:
  std::string folder_of(std::size_t host) const {
    return fmt::format("/tmp/{}{}-{}", cluster::kGuardPrefix, token_, host);
  }

  const std::string token_ = rendezvous::make_random_name(16);
};

class SetupRun {
 public:
  SetupRun(const SetupPlan& plan, const Reaching& reaching, Signals& signals, const Say& say)
      : plan_(plan), reaching_(reaching), signals_(signals), say_(say) {
    for (const SetupStep& step : plan.steps) busy_.insert(static_cast<std::size_t>(step.host));
    make_room_for_shells(busy_.size());
    for (const std::size_t host : busy_) send_worker(host);
  }

  SetupResult run() {
    const auto guards = for_each_host("prepare the automatic undo", [&](std::size_t host) {
      std::string undo;
      for (std::size_t step = plan_.steps.size(); step-- > 0;)
        if (host_of(step) == host) undo += (undo.empty() ? "" : "; ") + plan_.steps[step].undo;
      return guard_.start(host, undo, plan_.revert_after);
    });
    if (do_all(guards, true) && do_all(forward(), true)) {
      // An open connection may survive a broken route, so only a new one proves anything.
      for (const std::size_t host : busy_) send_worker(host);
      const auto checks = for_each_host(
          "connect again", [&](std::size_t host) { return guard_.renew(host); }, for_step());
      if (do_all(checks, true) && do_all(ends_of_guards(), true)) return {};
      fault_ = "after the set-up: " + fault_;
    }
    return undo();
  }

 private:
  /// If a step failed, parts of its command may have taken effect.
  enum class Outcome { done, failed, unknown };

  std::size_t host_of(std::size_t step) const {
    return static_cast<std::size_t>(plan_.steps[step].host);
  }

  void send_worker(std::size_t host) {
    workers_.erase(host);
    workers_.try_emplace(host, plan_.hosts[host], reaching_);
  }

  /// At most `revert_after`: the guard is not renewed while a HostJob runs.
  std::chrono::seconds for_step() const { return std::min(kForStep, plan_.revert_after); }

  std::vector<HostJob> for_each_host(const std::string& what,
                                     const std::function<std::string(std::size_t host)>& script,
                                     std::chrono::seconds limit = kForStep) const {
    std::vector<HostJob> jobs;
    for (const std::size_t host : busy_) jobs.push_back({host, what, script(host), kNoStep, limit});
    return jobs;
  }

  std::vector<HostJob> forward() const {
    std::vector<HostJob> jobs;
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const std::string& command = plan_.steps[i].command;
      jobs.push_back({host_of(i), command, guard_.guarded(host_of(i), command), i, for_step()});
    }
    return jobs;
  }

  std::vector<HostJob> ends_of_guards() const {
    return for_each_host("end the automatic undo",
                         [&](std::size_t host) { return guard_.stop(host); });
  }

  /// Undoes the steps that were begun, in reverse order, and ends the guards. Lost hosts undo
  /// theirs.
  SetupResult undo() {
    SetupResult result;
    result.fault = fault_;
    const std::map<std::size_t, Outcome> begun = std::exchange(outcomes_, {});
    for (const std::size_t host : busy_)
      if (!workers_.at(host).is_usable()) send_worker(host);
    std::vector<HostJob> jobs;
    for (std::size_t step = plan_.steps.size(); step-- > 0;) {
      const std::string& undo = plan_.steps[step].undo;
      if (begun.contains(step))
        jobs.push_back({host_of(step), undo, guard_.undoing(host_of(step), undo), step});
    }
    do_all(jobs, false);
    result.undone = std::ranges::none_of(begun, [this](const auto& step) {
      const auto undone = outcomes_.find(step.first);
      return step.second == Outcome::unknown ||
             (step.second == Outcome::done &&
              (undone == outcomes_.end() || undone->second != Outcome::done));
    });
    do_all(ends_of_guards(), false);
    for (const auto& [host, worker] : workers_)
      if (!worker.is_usable()) result.alone.insert(worker.name);
    return result;
  }

  /// Runs the jobs, in order on each host. Returns true if all succeeded. With `ends_at_fault`,
  /// starts no job after the first failure. Renews idle hosts' guards.
  bool do_all(const std::vector<HostJob>& jobs, bool ends_at_fault) {
    fault_.clear();
    std::map<std::size_t, std::deque<HostJob>> left;
    for (const HostJob& job : jobs) left[job.host].push_back(job);
    Clock::time_point renewed = Clock::now();
    for (bool busy = true; busy;) {
      busy = false;
      const bool renews = Clock::now() >= renewed + kRenewal;
      if (renews) renewed = Clock::now();
      for (auto& [host, worker] : workers_) {
        if (worker.job && !worker.busy()) settle(worker);
        const bool stop = (ends_at_fault && !fault_.empty()) || !worker.is_usable();
        if (!worker.job && !stop && !left[host].empty()) {
          if (left[host].front().step != kNoStep)
            say_(fmt::format("{}: {}", worker.name, left[host].front().what));
          worker.begin(left[host].front());
          left[host].pop_front();
        }
        const bool idle = !worker.job && worker.is_usable();
        if (renews && idle)
          worker.session.send("( " + guard_.renew(host) + " ) > /dev/null 2>&1\n");
        busy = busy || worker.job;
      }
      if (busy) wait(renewed + kRenewal);
    }
    return fault_.empty();
  }

  void settle(HostShell& worker) {
    const std::string fault = worker.fault();
    if (!fault.empty() && fault_.empty()) fault_ = fault;
    if (worker.job->step != kNoStep)
      outcomes_[worker.job->step] = fault.empty()   ? Outcome::done
                                    : worker.status ? Outcome::failed
                                                    : Outcome::unknown;
    worker.hung = worker.hung || !worker.status;
    worker.job.reset();
  }

  void wait(Clock::time_point limit) {
    Watch watch;
    watch.at(limit);
    for (auto& [host, worker] : workers_) {
      worker.session.watch(watch);
      if (worker.busy()) watch.at(worker.limit);
    }
    watch.on(signals_.descriptor(), POLLIN, [this] {
      for (const int number : signals_.take())
        if (number != SIGCHLD && number != SIGWINCH && fault_.empty())
          fault_ =
              fmt::format("signal {} ({}) interrupted the set-up", number, ::strsignal(number));
    });
    watch.wait();
    for (auto& [host, worker] : workers_) worker.session.collect();
  }

  const SetupPlan& plan_;
  const Reaching& reaching_;
  Signals& signals_;
  const Say& say_;
  const Guard guard_;
  std::set<std::size_t> busy_;  ///< Indices of the hosts that have steps.
  std::map<std::size_t, HostShell> workers_;
  std::map<std::size_t, Outcome> outcomes_;  ///< Keyed by the steps that were begun.
  std::string fault_;
};

bool person_agrees(Signals& signals) {
  fmt::print(stderr, "Run these commands? [y/N] ");
  std::fflush(stderr);
  std::string answer;
  for (bool more = true; more;) {
    Watch watch;
    watch.on(STDIN_FILENO, POLLIN, [&] {
      char next = '\n';
      const bool ended = ::read(STDIN_FILENO, &next, 1) != 1;
      if (ended && answer.empty())
        throw Error(
            "nothing was changed: no answer could be read from standard input; pass --yes to skip "
            "the question");
      more = !ended && next != '\n';
      if (more) answer += next;
    });
    watch.on(signals.descriptor(), POLLIN, [&] { signals.heed("; nothing was changed"); });
    watch.wait();
  }
  return answer == "y" || answer == "Y" || answer == "yes";
}

std::string undo_script(std::span<const Host> hosts, std::span<const SetupStep> steps,
                        const std::vector<std::string>& ssh_arguments) {
  std::string text =
      "#!/bin/sh\n# Undoes the changes of mccl config --auto-setup or mccl doctor --fix: run it as "
      "sh FILE.\nstatus=0\n";
  for (std::size_t i = steps.size(); i-- > 0;) {
    const Host& host = hosts[static_cast<std::size_t>(steps[i].host)];
    std::vector<std::string> words = {"sh", "-c"};
    if (!is_here(host)) {
      words = destination_words(host, ssh_arguments);
      words.insert(words.begin(), "ssh");
    }
    words.push_back(steps[i].undo);
    text += fmt::format("{} < /dev/null || status=1\n", command_line(words));
  }
  return text + "exit $status\n";
}

/// Uses a numbered path if `path` exists. Returns the path.
std::string write_undo_script(const std::string& path, const std::string& script) {
  std::string place = path;
  for (int number = 2; std::filesystem::exists(place); ++number)
    place = fmt::format("{}.{}", path, number);
  std::ofstream file(place, std::ios::binary);
  file << script;
  file.close();
  if (!file)
    throw Error(
        fmt::format("cannot write the script {} that undoes the changes: {}; nothing was changed",
                    place, std::strerror(errno)));
  ::chmod(place.c_str(), S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH);
  return place;
}

}  // namespace

std::string text_of(const SetupResult& result, const std::string& undo) {
  if (result.undone)
    return result.fault + "; the completed steps are undone, and nothing is changed";
  std::string text = fmt::format(
      "{}; some completed steps could not be undone; to undo them, run sh {}", result.fault, undo);
  for (const std::string& host : result.alone)
    text += fmt::format("; {} cannot be reached, but undoes its changes itself", host);
  return text;
}

void refuse_unconfirmed(std::span<const cluster::HostFacts> hosts) {
  for (const cluster::HostFacts& host : hosts)
    if (host.setup_unconfirmed)
      throw Error(
          fmt::format("{}: an earlier set-up of this host is not confirmed, and will be undone "
                      "within a minute; try again then",
                      host.host));
}

SetupResult run_setup(const SetupPlan& plan, const Reaching& reaching, Signals& signals,
                      const Say& say) {
  return SetupRun(plan, reaching, signals, say).run();
}

std::string agree_to(const SetupPlan& plan, const std::string& undo_path, bool sure,
                     const Reaching& reaching, Signals& signals, const Say& say) {
  if (!sure && !person_agrees(signals)) return {};
  std::string undo =
      write_undo_script(undo_path, undo_script(plan.hosts, plan.steps, reaching.ssh_arguments));
  say(fmt::format("sh {} undoes the following changes", undo));
  return undo;
}

}  // namespace mccl::cli::hosts
