#include "cli/hosts/setup_run.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/value_text.h"
#include "cli/kit/dialogue.h"
#include "cluster/text.h"
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
class HostShell {
 public:
  HostShell(const Host& host, const Reaching& reaching)
      : host_(host),
        session_([this, &reaching] { return start_shell(host_, reaching); },
                 [this](std::string_view line) { hear(line); }) {
    // There is no terminal, so sudo must not ask for a password.
    session_.send("sudo() { command sudo -n \"$@\"; }\n");
  }

  void begin(const HostJob& job) {
    job_ = job;
    output_.clear();
    status_.reset();
    limit_ = Clock::now() + job_->limit;
    session_.send(
        fmt::format("( {} ) < /dev/null 2>&1; s=$?; echo; echo {} $s\n", job.script, token_));
  }

  /// Sends a command and does not wait for its end.
  void send(const std::string& script) { session_.send(script); }

  void watch(Watch& watch) {
    session_.watch(watch);
    if (busy()) watch.at(limit_);
  }

  void collect() { session_.collect(); }

  bool busy() const { return job_ && !status_ && !session_.ended() && Clock::now() < limit_; }
  bool has_job() const { return job_.has_value(); }
  std::size_t step() const { return job_->step; }
  /// False if the connection was lost, or if a HostJob did not end in time, so the shell can run no
  /// other one.
  bool is_usable() const { return !session_.ended() && !hung_; }
  void forget_job() {
    hung_ = hung_ || !status_;
    job_.reset();
  }
  const std::string& name() const { return name_; }
  bool knows_outcome() const { return status_.has_value(); }

  /// Describes how the current job failed. Empty if it succeeded. Valid once busy() is false.
  std::string fault() const {
    if (status_ == 0) return {};
    const std::string said(cluster::trimmed(output_));
    if (status_)
      return fmt::format("{}: \"{}\" ended with status {}: {}", name_, job_->what, *status_,
                         said.empty() ? "it printed nothing" : printable(said));
    if (session_.ended())
      return fmt::format("{}: the connection was lost during \"{}\": {}", name_, job_->what,
                         explain_ssh(host_, session_.complaint()));
    return fmt::format("{}: \"{}\" did not end in {} s", name_, job_->what, job_->limit.count());
  }

 private:
  void hear(std::string_view line) {
    if (line.starts_with(token_ + " ")) {
      status_ = static_cast<int>(parse_integer(line.substr(token_.size() + 1)).value_or(-1));
    } else if (output_.size() < kLongestOutput) {
      output_.append(line).push_back('\n');
    }
  }

  const Host& host_;
  const std::string name_ = text_of(host_);
  const std::string token_ = "mccl-" + rendezvous::make_random_name(16);
  std::optional<HostJob> job_;
  bool hung_ = false;
  std::string output_;
  std::optional<int> status_;
  Clock::time_point limit_;
  Dialogue session_;
};

/// Builds scripts that start, renew and end a host's guard (see setup_run.h). Each host has a
/// folder with a file `undecided`. The session renames this file to `kept`, or the guard renames it
/// to `reverted`; the first rename decides whether the steps are kept. A rename takes no space, and
/// a guard that does not find `kept` undoes the steps. So the steps are undone even if /tmp is full
/// or has been emptied.
class Guard {
 public:
  /// Starts the guard: a process that survives the session, and undoes the steps if it is not
  /// renewed for `limit`. While the guard waits, it touches its file `waits`, which contains the
  /// name of the host's network namespace, because containers may share /tmp. Fails while the guard
  /// of another set-up waits, because that guard would undo this set-up.
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
  /// Restarts the guard's time limit, because the operator's session is still alive.
  std::string renew(std::size_t host) const {
    return fmt::format("[ -e {0}/undecided ] && touch {0}/alive", folder_of(host));
  }
  /// Runs the command. Fails if the guard stopped waiting before or during the command.
  std::string guarded(std::size_t host, const std::string& command) const {
    return fmt::format("{} && {{ {}; }} && [ -e {}/undecided ]", renew(host), command,
                       folder_of(host));
  }
  /// Undoes a step. Also succeeds if the guard has begun to undo all steps.
  std::string undoing(std::size_t host, const std::string& undo) const {
    return fmt::format("touch {0}/alive; {{ {1}; }} || [ -e {0}/reverted ]", folder_of(host), undo);
  }
  /// Ends the guard. Fails if the guard has begun to undo the steps, or does not exist.
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
      : plan_(plan),
        reaching_(reaching),
        signals_(signals),
        say_(say),
        workers_(plan.hosts.size()) {
    for (const SetupStep& step : plan.steps) busy_.insert(static_cast<std::size_t>(step.host));
    make_room_for_shells(busy_.size());
    for (const std::size_t host : busy_) send_worker(host);
  }

  SetupResult run() {
    if (do_all(guards(), true) && do_all(forward(), true)) {
      // An open connection may survive a broken route. Only a new connection proves that the host
      // is reachable.
      for (const std::size_t host : busy_) send_worker(host);
      if (do_all(checks(), true) && do_all(ends_of_guards(), true)) return {};
      fault_ = "after the set-up: " + fault_;
    }
    return undo();
  }

 private:
  /// The outcome of a step. If it failed, parts of its command may have taken effect.
  enum class Outcome { done, failed, unknown };

  std::size_t host_of(std::size_t step) const {
    return static_cast<std::size_t>(plan_.steps[step].host);
  }

  void send_worker(std::size_t host) {
    workers_[host] = std::make_unique<HostShell>(plan_.hosts[host], reaching_);
  }

  /// Time limit of a step's HostJob. It is at most `revert_after`, after which the guard would undo
  /// the steps: the guard is not renewed while a HostJob runs.
  std::chrono::seconds for_step() const { return std::min(kForStep, plan_.revert_after); }

  std::vector<HostJob> guards() const {
    std::vector<HostJob> jobs;
    for (const std::size_t host : busy_) {
      std::string undo;
      for (std::size_t step = plan_.steps.size(); step-- > 0;)
        if (host_of(step) == host) undo += (undo.empty() ? "" : "; ") + plan_.steps[step].undo;
      jobs.push_back(
          {host, "prepare the automatic undo", guard_.start(host, undo, plan_.revert_after)});
    }
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

  std::vector<HostJob> checks() const {
    std::vector<HostJob> jobs;
    for (const std::size_t host : busy_)
      jobs.push_back({host, "connect again", guard_.renew(host), kNoStep, for_step()});
    return jobs;
  }

  std::vector<HostJob> ends_of_guards() const {
    std::vector<HostJob> jobs;
    for (const std::size_t host : busy_)
      jobs.push_back({host, "end the automatic undo", guard_.stop(host)});
    return jobs;
  }

  /// Undoes all steps that were begun, in reverse order, and then ends the guards. If a host is
  /// lost meanwhile, the guard on that host undoes the host's steps.
  SetupResult undo() {
    SetupResult result;
    result.fault = fault_;
    const std::map<std::size_t, Outcome> begun = std::exchange(outcomes_, {});
    for (const std::size_t host : busy_)
      if (!workers_[host]->is_usable()) send_worker(host);
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
    for (const std::size_t host : busy_)
      if (!workers_[host]->is_usable()) result.alone.insert(workers_[host]->name());
    return result;
  }

  /// Runs the jobs, in parallel on all hosts and in order on each host. Returns true if all
  /// succeeded. If `ends_at_fault` is true, starts no job after the first failure. Renews the
  /// guards (see setup_run.h) of hosts that run no job.
  bool do_all(const std::vector<HostJob>& jobs, bool ends_at_fault) {
    fault_.clear();
    std::vector<std::deque<HostJob>> left(workers_.size());
    for (const HostJob& job : jobs) left[job.host].push_back(job);
    Clock::time_point renewed = Clock::now();
    for (bool busy = true; busy;) {
      busy = false;
      const bool renews = Clock::now() >= renewed + kRenewal;
      if (renews) renewed = Clock::now();
      for (const std::size_t host : busy_) {
        HostShell& worker = *workers_[host];
        if (worker.has_job() && !worker.busy()) settle(worker);
        const bool stop = (ends_at_fault && !fault_.empty()) || !worker.is_usable();
        if (!worker.has_job() && !stop && !left[host].empty()) {
          if (left[host].front().step != kNoStep)
            say_(fmt::format("{}: {}", worker.name(), left[host].front().what));
          worker.begin(left[host].front());
          left[host].pop_front();
        }
        const bool idle = !worker.has_job() && worker.is_usable();
        if (renews && idle) worker.send("( " + guard_.renew(host) + " ) > /dev/null 2>&1\n");
        busy = busy || worker.has_job();
      }
      if (busy) wait(renewed + kRenewal);
    }
    return fault_.empty();
  }

  void settle(HostShell& worker) {
    const std::string fault = worker.fault();
    if (!fault.empty() && fault_.empty()) fault_ = fault;
    if (worker.step() != kNoStep)
      outcomes_[worker.step()] = fault.empty()            ? Outcome::done
                                 : worker.knows_outcome() ? Outcome::failed
                                                          : Outcome::unknown;
    worker.forget_job();
  }

  void wait(Clock::time_point limit) {
    Watch watch;
    watch.at(limit);
    for (const std::size_t host : busy_) workers_[host]->watch(watch);
    watch.on(signals_.descriptor(), POLLIN, [this] {
      for (const int number : signals_.take())
        if (number != SIGCHLD && number != SIGWINCH && fault_.empty())
          fault_ =
              fmt::format("signal {} ({}) interrupted the set-up", number, ::strsignal(number));
    });
    watch.wait();
    for (const std::size_t host : busy_) workers_[host]->collect();
  }

  const SetupPlan& plan_;
  const Reaching& reaching_;
  Signals& signals_;
  const Say& say_;
  const Guard guard_;
  std::set<std::size_t> busy_;  ///< Indices of the hosts that have steps.
  /// Indexed by host; null for hosts without steps.
  std::vector<std::unique_ptr<HostShell>> workers_;
  std::map<std::size_t, Outcome>
      outcomes_;  ///< Keyed by the step; holds the steps that were begun.
  std::string fault_;
};

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

}  // namespace mccl::cli::hosts
