#include "cli/launch/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <utility>

#include "base/value_text.h"
#include "cli/command.h"
#include "cli/kit/program.h"
#include "cli/launch/running_rank.h"
#include "cli/launch/store_ways.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

using namespace std::chrono_literals;

constexpr int kTimedOut = 124;
/// Time in which other failures with the same cause are collected.
constexpr auto kSettling = 100ms;
constexpr auto kBetweenRestarts = 1s;

/// A rank and an ssh connection have three streams each.
constexpr std::size_t kFilesOfProcess = 3;
constexpr std::size_t kOtherFiles = 64;

class JobRun {
 public:
  JobRun(const Job& job, const RunOptions& options, Clock::time_point time_limit)
      : job_(job),
        options_(options),
        guardian_(options.grace),
        console_(job.size(), options.console, job.restarts),
        input_(static_cast<std::size_t>(job.size())),
        restarts_(static_cast<std::size_t>(job.size())),
        time_limit_(time_limit) {
    for (std::size_t host = 0; host < job.hosts.size(); ++host)
      hosts_.push_back(is_here(job.hosts[host])
                           ? make_local_host(job, host, options, *guardian_)
                           : make_ssh_host(job, host, options, *guardian_, logins_));
    for (int rank = 0; rank < job.size(); ++rank)
      if (options.inherits_streams || options.input_rank.value_or(rank) != rank)
        input_.leave(static_cast<std::size_t>(rank));
  }

  Ended run() {
    wait_for_hosts(&RunningHost::checked);
    prepare_hosts();
    start_ranks();
    wait_for_ranks();
    finish_hosts();
    if (options_.on_mccl && !stopped())
      for (const std::string& text : texts_of_unused_mccl(hosts_, !failures_.empty())) say(text);
    const int status = output_lost_ ? kFailed : verdict();
    console_.finish();
    const auto lost = console_.lost_output();
    const bool by_rank = !failures_.empty() && !stopped() && !lost;
    return {lost ? report_lost_output(*lost) : status, stop_signal_, by_rank};
  }

 private:
  /// How far the launcher has ended the job: after the first failure, it waits for kSettling, then
  /// sends SIGTERM, and SIGKILL after the grace time.
  enum class Ending { no, settling, terminated, killed };

  /// The restarts of one rank (--restart failed).
  struct RankRestarts {
    int count = 0;
    /// Keeps a rank that fails at once from using up its restarts within moments.
    Clock::time_point due = {};
  };

  void say(const std::string& what) {
    console_.say(fmt::format("{}: {}\n", options_.command, what));
  }

  void say_if_verbose(const std::string& what) {
    if (job_.request.verbose) say(what);
  }

  /// Throws Error if hosts cannot be used; the message lists them all.
  void wait_for_hosts(bool (RunningHost::*done)() const) {
    while (!stopped() &&
           !std::ranges::all_of(hosts_, [&](const auto& host) { return (host.get()->*done)(); }))
      step();
    std::string faults;
    for (const auto& host : hosts_)
      if (const std::string fault = host->fault(); !stopped() && !fault.empty())
        faults += fmt::format("\n  {}: {}", text_of(host->host()), fault);
    if (faults.empty()) return;
    finish_hosts();
    throw Error("nothing was started:" + faults);
  }

  void prepare_hosts() {
    if (stopped()) return;
    std::vector<ReachedHost> reached;
    for (const auto& host : hosts_) reached.push_back(host->reached());
    // Other hosts cannot reach this machine at 127.0.0.1. They use the source address of the
    // launcher's ssh connections.
    const auto other =
        std::ranges::find_if(reached, [](const ReachedHost& r) { return !r.launcher.empty(); });
    for (std::size_t host = 0; other != reached.end() && host < hosts_.size(); ++host)
      if (is_here(job_.hosts[host])) reached[host].address = other->launcher;
    for (std::size_t host = 0; host < hosts_.size(); ++host)
      say_if_verbose(fmt::format("{} is ready at {}; the job's files are in {}",
                                 text_of(job_.hosts[host]), reached[host].address,
                                 printable(reached[host].folder)));
    const Ports ports = choose_ports(job_, options_.starting_port, reached);
    find_store_ways(reached, ports);
    std::vector<NamedText> files = {{kRingFile, ring_file(job_, ports, reached)}};
    const std::string devices = devices_file(job_);
    if (!devices.empty()) files.emplace_back(kDevicesFile, devices);
    for (const auto& host : hosts_) {
      std::vector<Variables> variables;
      for (const RankPlan* rank : host->ranks())
        variables.push_back(environment_of(job_, *rank, ports, reached, options_.inherited));
      host->prepare(files, variables);
    }
    wait_for_hosts(&RunningHost::prepared);
  }

  /// If hosts may be unable to reach each other, finds out how each host reaches torch's store.
  void find_store_ways(std::vector<ReachedHost>& reached, const Ports& ports) {
    if (!may_be_sparse(job_)) return;
    store_ways_.emplace(job_, hosts_, reached, ports.master, guardian_->folder());
    while (!stopped() && !store_ways_->done()) step();
    store_ways_->enter(reached);
    for (const std::string& complaint : store_ways_->complaints()) say(complaint);
    for (std::size_t host = 0; host < hosts_.size(); ++host)
      if (const ReachedHost& at = reached[host]; !at.store.empty())
        say_if_verbose(fmt::format("{} reaches torch's store at {}", text_of(job_.hosts[host]),
                                   at_port(at.store, at.store_port)));
  }

  void start_ranks() {
    if (stopped()) return;
    if (!console_.log_folder().empty())
      say_if_verbose(
          fmt::format("the ranks' output is also in {}", printable(console_.log_folder())));
    if (options_.bind_to_is_asked && options_.bind_to != BindTo::none)
      for (const std::string& text : texts_of_unbound(hosts_)) say(text);
    for (const RankPlan& rank : job_.ranks) {
      const bool gets_input = input_.reading(static_cast<std::size_t>(rank.rank));
      std::optional<TerminalPlan> terminal;
      if (at_terminal_ && gets_input) terminal = {terminal_size(), keys_go_through_};
      RunningHost& host = *hosts_[rank.host];
      const Binding& binding = host.binding_of(rank);
      say_if_verbose(
          fmt::format("rank {} on {}, {}: {}", rank.rank, text_of(host.host()),
                      binding.processors.empty()
                          ? fmt::format("not bound to cores ({})", binding.why_not)
                          : fmt::format("bound to cores {}", list_of(binding.processors)),
                      command_line(rank.argv)));
      ranks_.push_back(std::make_unique<RunningRank>(rank, host, host.start(rank, 0, terminal),
                                                     terminal && keys_go_through_));
    }
    if (keys_go_through_) raw_keys_.emplace();
  }

  void wait_for_ranks() {
    for (;;) {
      const bool all = std::ranges::all_of(ranks_, [](const auto& r) { return r->finished(); });
      if (!start_failed_ranks_again() && all) break;
      input_.watch(watch_, at_terminal_);
      for (const auto& rank : ranks_) {
        rank->watch(watch_, console_, input_);
        rank->show_pieces(watch_, console_);
      }
      step();
      move_towards_the_end();
    }
    for (const auto& rank : ranks_) rank->close(console_);
    raw_keys_.reset();
  }

  /// Not for a rank whose host was lost or whose program could not be started.
  bool may_start_again(const RunningRank& rank) const {
    const bool is_ending = stopped() || ending_ != Ending::no || !failures_.empty();
    if (is_ending || !options_.restarts_failed_only || !rank.exit() || rank.exit()->good())
      return false;
    const int status = rank.exit()->status;
    return !rank.exit()->connection_lost && status != kCannotExecute && status != kNotFound &&
           restarts_[static_cast<std::size_t>(rank.rank())].count < options_.max_restarts;
  }

  /// Returns true if a rank was started, or is to be started later.
  bool start_failed_ranks_again() {
    bool is_any = false;
    for (const std::unique_ptr<RunningRank>& rank : ranks_) {
      if (!rank->finished() || !may_start_again(*rank)) continue;
      is_any = true;
      const Clock::time_point due = restarts_[static_cast<std::size_t>(rank->rank())].due;
      due <= Clock::now() ? start_again(rank->rank()) : watch_.at(due);
    }
    return is_any;
  }

  /// The rank gets no input, because its predecessor may have read a part of it, and no terminal.
  void start_again(int number) {
    const auto index = static_cast<std::size_t>(number);
    const RankPlan& plan = job_.ranks[index];
    std::unique_ptr<RunningRank>& rank = ranks_[index];
    rank->close(console_);
    restarts_[index].due = Clock::now() + kBetweenRestarts;
    const int restarts = ++restarts_[index].count;
    say(fmt::format("{}; it starts again, restart {} of {}",
                    text_of({number, text_of(job_.hosts[plan.host]), *rank->exit()}, job_.size()),
                    restarts, options_.max_restarts));
    if (options_.input_rank.value_or(number) == number) raw_keys_.reset();
    input_.leave(index);
    RunningHost& host = *hosts_[plan.host];
    replaced_.push_back(std::exchange(
        rank, std::make_unique<RunningRank>(plan, host, host.start(plan, restarts, {}), false)));
  }

  void finish_hosts() {
    store_ways_.reset();
    for (const auto& host : hosts_) host->finish();
    while (!std::ranges::all_of(hosts_, [](const auto& h) { return h->finished(); })) step();
    guardian_.reset();
  }

  int verdict() {
    if (stop_signal_ != 0) {
      say(fmt::format("signal {} ({}) ended the job", stop_signal_, ::strsignal(stop_signal_)));
      return kSignalBase + stop_signal_;
    }
    if (timed_out_) {
      say(fmt::format("the job was ended after {:g} s (--timeout)",
                      static_cast<double>(options_.timeout->count()) / 1e3));
      return kTimedOut;
    }
    const std::vector<std::string> troubles = add_lost_hosts(hosts_, job_, failures_);
    if (failures_.empty()) return kGood;
    const RankFailure& first = first_cause(failures_);
    const std::string_view then = job_.size() == 1 ? ""
                                  : options_.restarts_failed_only
                                      ? "; the job was ended"
                                      : "; it failed first and the job was ended";
    if (!options_.inherits_streams || killed(first.exit))
      say(fmt::format("{}{}", text_of(first, job_.size()), then));
    for (const std::string& trouble : troubles) say(trouble);
    return first.exit.connection_lost ? kConnectionLost : first.exit.status;
  }

  /// Returns the exit status: as for SIGPIPE if the reader has closed the output, else kFailed.
  int report_lost_output(const Writer::LostOutput& lost) {
    const std::string_view then = output_lost_ ? "; the job was ended" : "";
    Console::say_last(fmt::format("{}: {}{}\n", options_.command, console_.text_of(lost), then));
    return lost.error == EPIPE ? kSignalBase + SIGPIPE : kFailed;
  }

  void step() {
    watch_.on(signals_.descriptor(), POLLIN, [this] { on_signals(); });
    console_.watch(watch_);
    if (store_ways_) store_ways_->watch(watch_);
    for (const auto& host : hosts_) host->watch(watch_);
    watch_.at(next_ending_);
    if (!timed_out_) watch_.at(time_limit_);
    watch_.wait();
    if (std::ranges::any_of(ranks_, [](const auto& rank) { return rank->has_announced_end(); }))
      collect();
    if (!output_lost_ && console_.lost_output()) {
      output_lost_ = true;
      terminate();
    }
    if (!timed_out_ && Clock::now() >= time_limit_) {
      timed_out_ = true;
      terminate();
    }
  }

  void on_signals() {
    for (const int number : signals_.take()) {
      if (number == SIGCHLD) {
        collect();
      } else if (number == SIGWINCH) {
        for (const auto& rank : ranks_) rank->resize(terminal_size());
      } else if (number == SIGUSR1 || number == SIGUSR2 || number == SIGQUIT) {
        for (const auto& host : hosts_) host->signal(number);
      } else if (stop_signal_ == 0) {
        stop_signal_ = number;
        terminate();
      } else {
        kill();
      }
    }
  }

  void collect() {
    for (const auto& host : hosts_) host->collect();
    if (store_ways_) store_ways_->collect();
    std::erase_if(replaced_, [](const auto& rank) { return rank->collect_rest(); });
    for (const auto& rank : ranks_) {
      // A rank that exits after the launcher has begun to end the job does not count as failed.
      if (!rank->collect() || rank->exit()->good() || ending_ >= Ending::terminated ||
          may_start_again(*rank))
        continue;
      failures_.push_back({rank->rank(), text_of(job_.hosts[rank->host()]), *rank->exit()});
    }
  }

  void move_towards_the_end() {
    if (!failures_.empty() && ending_ == Ending::no) {
      ending_ = Ending::settling;
      next_ending_ = Clock::now() + kSettling;
    }
    if (Clock::now() < next_ending_) return;
    ending_ == Ending::settling ? terminate() : kill();
  }

  void terminate() {
    if (ending_ >= Ending::terminated) return;
    ending_ = Ending::terminated;
    next_ending_ = Clock::now() + options_.grace;
    for (const auto& host : hosts_) host->signal(SIGTERM);
  }

  void kill() {
    ending_ = Ending::killed;
    next_ending_ = Clock::time_point::max();
    for (const auto& host : hosts_) host->signal(SIGKILL);
  }

  bool stopped() const { return stop_signal_ != 0 || timed_out_ || output_lost_; }

  const Job& job_;
  const RunOptions& options_;
  Signals signals_;
  /// Constructed before any member that starts a thread, because Guardian forks.
  std::optional<Guardian> guardian_;
  Logins logins_;
  RunningHosts hosts_;
  std::optional<StoreWays> store_ways_;
  const bool at_terminal_ = !options_.inherits_streams && at_a_terminal() && !in_the_background();
  const bool keys_go_through_ = at_terminal_ && (options_.input_rank || job_.size() == 1);
  Console console_;
  std::optional<RawKeys> raw_keys_;
  Input input_;
  std::vector<std::unique_ptr<RunningRank>> ranks_;  ///< Indexed by rank.
  std::vector<RankRestarts> restarts_;               ///< Indexed by rank.
  /// Failed ranks that were started again, until their processes are reaped.
  std::vector<std::unique_ptr<RunningRank>> replaced_;
  Watch watch_;

  std::vector<RankFailure> failures_;  ///< In the order of detection.
  int stop_signal_ = 0;
  bool timed_out_ = false;
  bool output_lost_ = false;
  const Clock::time_point time_limit_;
  Ending ending_ = Ending::no;
  /// Time of the next signal to the ranks, if any.
  Clock::time_point next_ending_ = Clock::time_point::max();
};

}  // namespace

Ended run(const Job& job, const RunOptions& options) {
  const auto ranks = static_cast<std::size_t>(job.size());
  make_room_for_files(kFilesOfProcess * (ranks + connections_of(job)) +
                          (options.console.log_folder.empty() ? 0 : ranks) + kOtherFiles,
                      fmt::format("a job of {} ranks", ranks), "start fewer ranks");
  Job next = job;
  const Clock::time_point time_limit =
      options.timeout ? Clock::now() + *options.timeout : Clock::time_point::max();
  for (;;) {
    const Ended ended = JobRun(next, options, time_limit).run();
    const bool is_late = Clock::now() >= time_limit;
    const int allowed = options.restarts_failed_only ? 0 : options.max_restarts;
    if (!ended.by_rank || is_late || next.restarts == allowed) return ended;
    ++next.restarts;
    Console::say_last(fmt::format("{}: starting all ranks again, restart {} of {}\n",
                                  options.command, next.restarts, options.max_restarts));
  }
}

}  // namespace mccl::cli::launch
