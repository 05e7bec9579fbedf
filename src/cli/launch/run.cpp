#include "cli/launch/run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <limits>
#include <memory>

#include "base/value_text.h"
#include "cli/command.h"
#include "cli/launch/free_ports.h"
#include "cli/launch/guardian.h"
#include "cli/launch/input.h"
#include "cli/launch/local_host.h"
#include "cli/launch/logins.h"
#include "cli/launch/running_rank.h"
#include "cli/launch/signals.h"
#include "cli/launch/ssh_host.h"
#include "cli/launch/store_ways.h"
#include "cli/launch/terminal.h"
#include "cli/launch/words.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

using namespace std::chrono_literals;

constexpr int kTimedOut = 124;
constexpr int kConnectionLost = 255;
/// Delay between the first failure and the end of the job. Meanwhile, failures of other ranks that
/// have the same cause are collected.
constexpr auto kSettling = 100ms;
/// Interval at which a job in the background checks whether it has come to the foreground of its
/// terminal.
constexpr auto kBetweenLooksAtTerminal = 1s;

/// Number of open files for each rank, or session of ssh: its three streams.
constexpr std::size_t kFilesOfProcess = 3;
/// Number of open files for everything else. Log files are counted separately.
constexpr std::size_t kOtherFiles = 64;

/// Number of files that the launcher itself opens.
std::size_t files_for(const Job& job, const ConsoleOptions& console) {
  const auto ranks = static_cast<std::size_t>(job.size());
  std::size_t processes = ranks;
  for (std::size_t host = 0; host < job.hosts.size(); ++host)
    processes += connections_for(static_cast<std::size_t>(job.ranks_on(host)));
  return kFilesOfProcess * processes + (console.log_folder.empty() ? 0 : ranks) + kOtherFiles;
}

/// True if the job has more connections than may log in at the same time.
bool is_crowded(const Job& job) {
  std::size_t connections = 0;
  for (std::size_t host = 0; host < job.hosts.size(); ++host)
    connections += connections_for(static_cast<std::size_t>(job.ranks_on(host)));
  return connections > static_cast<std::size_t>(Logins::kMost);
}

/// Opens standard streams that are closed. Otherwise the first pipe would take their descriptors.
void open_standard_streams() {
  int opened = 0;
  do opened = ::open("/dev/null", O_RDWR);
  while (opened >= 0 && opened <= STDERR_FILENO);
  if (opened >= 0) ::close(opened);
}

class JobRun {
 public:
  JobRun(const Job& job, const RunOptions& options);

  int run();

 private:
  std::vector<const Rank*> ranks_on(std::size_t host) const;

  std::unique_ptr<RunningHost> open_host(std::size_t host);
  void reach_hosts();
  /// Throws an Error if any host cannot be used. The message lists all such hosts.
  void refuse_faults();
  /// Prints `what` if --verbose was given.
  void tell(const std::string& what);
  void prepare_hosts();
  /// Finds out how each host reaches torch's store.
  void find_store_ways(std::vector<Reached>& reached, const Ports& ports);
  /// Reports hosts whose ranks are not bound to cores, if --bind-to was given.
  void tell_of_unbound();
  void start_ranks();
  void wait_for_ranks();
  void finish_hosts();
  /// With --mlx: warns of hosts on which no program imported MLX with MCCL's hook active.
  void warn_of_programs_without_mccl();
  int verdict();
  std::string name_the_network();
  int tell_of_lost_output(const Console::LostOutput& lost);

  void watch_hosts();
  void watch_input();
  void read_input();
  /// Waits once for any event and handles it.
  void step();
  void on_signals();
  void collect();
  void move_towards_the_end();
  void terminate();
  void kill();
  bool stopped() const { return stop_signal_ != 0 || timed_out_ || output_lost_; }

  const Job& job_;
  const RunOptions& options_;
  Signals signals_;
  std::optional<Guardian> guardian_;  ///< Made before anything that starts a thread.
  Logins logins_;
  std::vector<std::unique_ptr<RunningHost>> hosts_;
  std::optional<StoreWays> store_ways_;
  const bool at_terminal_ = at_a_terminal() && !in_the_background();
  const bool keys_go_through_ = at_terminal_ && (options_.input_rank || job_.size() == 1);
  Console console_;
  std::optional<RawKeys> raw_keys_;
  Input input_;
  std::vector<std::unique_ptr<RunningRank>> ranks_;
  Watch watch_;

  std::vector<Failure> failures_;  ///< In the order of detection.
  int stop_signal_ = 0;
  bool timed_out_ = false;
  bool output_lost_ = false;
  std::optional<Clock::time_point> time_limit_;
  std::optional<Clock::time_point> terminate_at_;
  std::optional<Clock::time_point> kill_at_;
  bool killed_ = false;
};

JobRun::JobRun(const Job& job, const RunOptions& options)
    : job_(job),
      options_(options),
      guardian_(options.grace),
      console_(job.size(), options.console),
      input_(static_cast<std::size_t>(job.size())) {
  for (std::size_t host = 0; host < job.hosts.size(); ++host) hosts_.push_back(open_host(host));
  if (options.timeout) time_limit_ = Clock::now() + *options.timeout;
  for (int rank = 0; options.input_rank && rank < job.size(); ++rank)
    if (rank != *options.input_rank) input_.leave(static_cast<std::size_t>(rank));
}

std::vector<const Rank*> JobRun::ranks_on(std::size_t host) const {
  std::vector<const Rank*> ranks;
  for (const Rank& rank : job_.ranks)
    if (rank.host == host) ranks.push_back(&rank);
  return ranks;
}

std::unique_ptr<RunningHost> JobRun::open_host(std::size_t host) {
  const Host& about = job_.hosts[host];
  if (is_here(about))
    return std::make_unique<LocalHost>(ranks_on(host), options_.inherited, *guardian_,
                                       options_.bind_to);
  std::string path;
  const Host& first = job_.entry_of(*ranks_on(host).front());
  for (const Variables* variables : {&job_.request.environment, &first.environment})
    if (const auto found = variables->find("PATH"); found != variables->end()) path = found->second;
  return std::make_unique<SshHost>(
      about, host, ranks_on(host), options_.inherited, *guardian_, logins_,
      SshOptions{options_.ssh_arguments, options_.grace, options_.silence, path, options_.patience,
                 options_.bind_to, is_crowded(job_)});
}

int JobRun::run() {
  reach_hosts();
  prepare_hosts();
  start_ranks();
  wait_for_ranks();
  finish_hosts();
  warn_of_programs_without_mccl();
  const int status = output_lost_ ? kFailed : verdict();
  console_.finish();
  if (const auto lost = console_.lost_output()) return tell_of_lost_output(*lost);
  return status;
}

/// Reports the loss. Returns the exit status: the one that a shell shows for SIGPIPE if the reader
/// has closed the output, else kFailed.
int JobRun::tell_of_lost_output(const Console::LostOutput& lost) {
  const std::string_view then = output_lost_ ? "; the job was ended" : "";
  Console::say_last(fmt::format("mccl launch: {}{}\n", lost.text, then));
  return lost.no_reader ? kSignalBase + SIGPIPE : kFailed;
}

void JobRun::reach_hosts() {
  while (!stopped() && !std::ranges::all_of(hosts_, [](const auto& h) { return h->checked(); }))
    step();
  refuse_faults();
}

void JobRun::refuse_faults() {
  std::string faults;
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    const std::string fault = stopped() ? "" : hosts_[host]->fault();
    if (!fault.empty()) faults += fmt::format("\n  {}: {}", text_of(job_.hosts[host]), fault);
  }
  if (faults.empty()) return;
  finish_hosts();
  throw Error("nothing was started:" + faults);
}

void JobRun::tell(const std::string& what) {
  if (options_.verbose) console_.say(fmt::format("mccl launch: {}\n", what));
}

void JobRun::find_store_ways(std::vector<Reached>& reached, const Ports& ports) {
  if (!may_be_sparse(job_)) return;
  store_ways_.emplace(job_, hosts_, reached, ports.master, guardian_->folder());
  while (!stopped() && !store_ways_->done()) step();
  store_ways_->enter(reached);
  for (const std::string& complaint : store_ways_->complaints())
    console_.say(fmt::format("mccl launch: {}\n", complaint));
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    const StorePlace& place = reached[host].store;
    if (!place.address.empty())
      tell(fmt::format("{} reaches torch's store at {}", text_of(job_.hosts[host]),
                       with_port(place.address, place.port)));
  }
}

void JobRun::prepare_hosts() {
  if (stopped()) return;
  std::vector<Reached> reached;
  for (const auto& host : hosts_) reached.push_back(host->reached());
  // Other hosts cannot reach this machine at 127.0.0.1. They use the address that ssh came from.
  const auto other =
      std::ranges::find_if(reached, [](const Reached& r) { return !r.launcher.empty(); });
  for (std::size_t host = 0; other != reached.end() && host < hosts_.size(); ++host)
    if (is_here(job_.hosts[host])) reached[host].address = other->launcher;
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    tell(fmt::format("{} is ready at {}; the job's files are in {}", text_of(job_.hosts[host]),
                     reached[host].address, printable(reached[host].folder)));
  }
  const Ports ports = choose_ports(job_, options_.starting_port, reached);
  find_store_ways(reached, ports);
  const Files files{ring_file(job_, ports, reached), devices_file(job_)};
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    std::vector<Variables> variables;
    for (const Rank* rank : ranks_on(host))
      variables.push_back(environment_of(job_, *rank, ports, reached, options_.inherited));
    hosts_[host]->prepare(files, ranks_on(host), variables);
  }
  while (!stopped() && !std::ranges::all_of(hosts_, [](const auto& h) { return h->prepared(); }))
    step();
  refuse_faults();
}

void JobRun::tell_of_unbound() {
  if (!options_.bind_to_is_asked || options_.bind_to == BindTo::none) return;
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    const Binding& first = hosts_[host]->binding_of(*ranks_on(host).front());
    if (first.processors.empty())
      console_.say(fmt::format("mccl launch: the ranks on {} are not bound to cores: {}\n",
                               text_of(job_.hosts[host]), first.why_not));
  }
}

void JobRun::start_ranks() {
  if (stopped()) return;
  if (!console_.log_folder().empty())
    tell(fmt::format("the ranks' output is also in {}", printable(console_.log_folder())));
  tell_of_unbound();
  for (const Rank& rank : job_.ranks) {
    const bool gets_input = input_.reading(static_cast<std::size_t>(rank.rank));
    std::optional<TerminalPlan> terminal;
    if (at_terminal_ && gets_input) terminal = {terminal_size(), keys_go_through_};
    RunningHost& host = *hosts_[rank.host];
    const Binding& binding = host.binding_of(rank);
    tell(fmt::format("rank {} on {}, {}: {}", rank.rank, text_of(job_.hosts[rank.host]),
                     binding.processors.empty()
                         ? fmt::format("not bound to cores ({})", binding.why_not)
                         : fmt::format("bound to cores {}", list_of(binding.processors)),
                     command_line(rank.argv)));
    ranks_.push_back(std::make_unique<RunningRank>(rank, host, host.start(rank, terminal),
                                                   terminal && keys_go_through_));
  }
  if (keys_go_through_) raw_keys_.emplace();
}

void JobRun::wait_for_ranks() {
  while (!std::ranges::all_of(ranks_, [](const auto& rank) { return rank->finished(); })) {
    watch_input();
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

void JobRun::finish_hosts() {
  store_ways_.reset();
  for (const auto& host : hosts_) host->finish();
  while (!std::ranges::all_of(hosts_, [](const auto& h) { return h->finished(); })) step();
  guardian_.reset();
}

void JobRun::warn_of_programs_without_mccl() {
  if (!options_.on_mccl || stopped()) return;
  std::vector<std::string> without;
  for (std::size_t host = 0; host < hosts_.size(); ++host)
    if (!hosts_[host]->had_mlx_on_mccl()) without.push_back(text_of(job_.hosts[host]));
  const bool failed = !failures_.empty();
  // If the job failed and no host has MCCL, the programs probably failed before they imported MLX.
  if (without.empty() || (failed && without.size() == hosts_.size())) return;
  console_.say(fmt::format(
      "mccl launch: WARN: {} no program on {}: none imported MLX under a Python that has MCCL "
      "installed. Install mccl-engine there for the program's Python, or name another with "
      "--python\n",
      failed ? "when the job failed, --mlx had reached" : "--mlx reached",
      fmt::join(without, ", ")));
}

int JobRun::verdict() {
  if (stop_signal_ != 0) {
    console_.say(fmt::format("mccl launch: signal {} ({}) ended the job\n", stop_signal_,
                             ::strsignal(stop_signal_)));
    return kSignalBase + stop_signal_;
  }
  if (timed_out_) {
    console_.say(fmt::format("mccl launch: the job was ended after {:g} s (--timeout)\n",
                             static_cast<double>(options_.timeout->count()) / 1e3));
    return kTimedOut;
  }
  const std::string troubles = name_the_network();
  if (failures_.empty()) return kGood;
  const Failure& first = first_cause(failures_);
  console_.say("mccl launch: " + text_of(first, job_.size()) + troubles);
  return first.exit.connection_lost ? kConnectionLost : first.exit.status;
}

/// Counts ranks that a network failure ended as lost with their host, because the launcher or its
/// guard sent the signal that killed them. Returns a report on the network failures.
std::string JobRun::name_the_network() {
  std::string text;
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    const std::optional<Trouble> trouble = hosts_[host]->trouble();
    if (!trouble) continue;
    text += fmt::format("mccl launch: {}\n", trouble->text);
    if (!trouble->ranks_lost) continue;
    const Exit lost{.status = kConnectionLost, .connection_lost = true};
    int rank = ranks_on(host).front()->rank;
    for (const Failure& failure : failures_)
      if (job_.ranks[static_cast<std::size_t>(failure.rank)].host == host) rank = failure.rank;
    failures_.push_back({rank, text_of(job_.hosts[host]), lost});
  }
  return text;
}

void JobRun::watch_hosts() {
  if (store_ways_) store_ways_->watch(watch_);
  for (const auto& host : hosts_) host->watch(watch_);
}

void JobRun::watch_input() {
  if (!input_.wants_more()) return;
  if (in_the_background()) {
    watch_.at(Clock::now() + kBetweenLooksAtTerminal);
  } else {
    watch_.on(STDIN_FILENO, POLLIN, [this] { read_input(); });
  }
}

void JobRun::read_input() {
  std::array<char, 1 << 16> bytes;
  const ssize_t n = read_some(STDIN_FILENO, bytes.data(), bytes.size());
  if (n > 0) {
    input_.add({bytes.data(), static_cast<std::size_t>(n)});
  } else if (n == 0 && at_terminal_) {
    // Ctrl-D ends the current read but does not close the terminal.
    input_.add({&kEndOfInput, 1});
  } else {
    input_.end();
  }
}

void JobRun::step() {
  watch_.on(signals_.descriptor(), POLLIN, [this] { on_signals(); });
  console_.watch(watch_);
  watch_hosts();
  for (const auto& time : {time_limit_, terminate_at_, kill_at_})
    if (time) watch_.at(*time);
  watch_.wait();
  if (std::ranges::any_of(ranks_, [](const auto& rank) { return rank->tells_its_end(); }))
    collect();
  if (!output_lost_ && console_.lost_output()) {
    output_lost_ = true;
    terminate();
  }
  if (time_limit_ && Clock::now() >= *time_limit_) {
    time_limit_.reset();
    timed_out_ = true;
    terminate();
  }
}

void JobRun::on_signals() {
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

void JobRun::collect() {
  for (const auto& host : hosts_) host->collect();
  if (store_ways_) store_ways_->collect();
  for (const auto& rank : ranks_) {
    // Once the launcher ends the job, a rank's exit says nothing about the cause.
    const bool ending = kill_at_ || killed_;
    if (!rank->collect() || rank->exit()->good() || ending) continue;
    failures_.push_back({rank->rank(), text_of(job_.hosts[rank->host()]), *rank->exit()});
  }
}

void JobRun::move_towards_the_end() {
  const Clock::time_point now = Clock::now();
  if (!failures_.empty() && !terminate_at_ && !kill_at_ && !killed_)
    terminate_at_ = now + kSettling;
  if (terminate_at_ && now >= *terminate_at_) terminate();
  if (kill_at_ && now >= *kill_at_) kill();
}

void JobRun::terminate() {
  terminate_at_.reset();
  if (kill_at_ || killed_) return;
  for (const auto& host : hosts_) host->signal(SIGTERM);
  kill_at_ = Clock::now() + options_.grace;
}

void JobRun::kill() {
  kill_at_.reset();
  killed_ = true;
  for (const auto& host : hosts_) host->signal(SIGKILL);
}

}  // namespace

std::vector<Reached> expected_places(const Job& job) {
  std::vector<Reached> places;
  for (const Host& host : job.hosts)
    places.push_back({is_here(host) && job.all_here() ? "127.0.0.1" : host.name, "FOLDER"});
  return places;
}

Ports choose_ports(const Job& job, const std::optional<int>& starting_port,
                   std::span<const Reached> places) {
  if (starting_port) return ports_from(job, *starting_port);
  if (job.all_here()) {
    const std::vector<std::uint16_t> free = free_ports(2 + ring_ports(job));
    return {.root = free[0], .master = free[1], .ring = {free.begin() + 2, free.end()}};
  }
  const bool some_here = std::ranges::any_of(job.hosts, is_here);
  const auto is_taken = [&](std::uint16_t port) {
    return (some_here && !places.empty() && !is_free(port)) ||
           std::ranges::any_of(places, [&](const Reached& at) { return at.taken.contains(port); });
  };
  constexpr int kBlocks = 64;
  for (int block = 0; block < kBlocks; ++block) {
    const int first = kUsualPort + block * static_cast<int>(2 + ring_ports(job));
    if (first + static_cast<int>(ring_ports(job)) > std::numeric_limits<std::uint16_t>::max())
      break;
    Ports ports = ports_from(job, first);
    if (!is_taken(ports.root) && !is_taken(ports.master) &&
        std::ranges::none_of(ports.ring, is_taken))
      return ports;
  }
  return ports_from(job, kUsualPort);
}

int run(const Job& job, const RunOptions& options) {
  open_standard_streams();
  make_room_for_files(files_for(job, options.console), fmt::format("a job of {} ranks", job.size()),
                      "start fewer ranks");
  JobRun running(job, options);
  return running.run();
}

}  // namespace mccl::cli::launch
