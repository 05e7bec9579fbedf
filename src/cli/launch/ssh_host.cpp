#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "cli/kit/dialogue.h"
#include "cli/kit/program.h"
#include "cli/launch/remote_script.h"
#include "cli/launch/running_host.h"
#include "rendezvous/connections/proof.h"

namespace mccl::cli::launch {
namespace {

using namespace std::chrono_literals;

/// sshd allows ten sessions per connection by default (MaxSessions). One session keeps the
/// connection open, and one is reserved for start_mccl().
constexpr std::size_t kRanksOfConnection = 8;
constexpr auto kForKill = 5s;
constexpr auto kForFinish = 5s;
constexpr auto kBetweenBeats = 1s;
constexpr int kSshFailed = 255;
/// The guard's command for each signal.
constexpr std::pair<int, const char*> kWords[] = {{SIGUSR1, "usr1\n"},
                                                  {SIGUSR2, "usr2\n"},
                                                  {SIGQUIT, "quit\n"},
                                                  {SIGKILL, "kill\n"},
                                                  {SIGTERM, "term\n"}};

std::size_t connections_for(std::size_t ranks) {
  return std::max<std::size_t>(1, (ranks + kRanksOfConnection - 1) / kRanksOfConnection);
}

/// Another machine. Each rank is a session of ssh.
class SshHost final : public RunningHost {
 public:
  SshHost(const Job& job, std::size_t host, const RunOptions& options, Guardian& guardian,
          Logins& logins)
      : RunningHost(job, host, options, guardian),
        number_(host),
        logins_(logins),
        path_(path_of(job.entry_of(*ranks_.front()).environment, path_of(job.request.environment))),
        token_("mccl-" + rendezvous::make_random_name(16)),
        limit_(Clock::now() + std::chrono::seconds(options.patience)),
        contact_(host_, options.silence) {
    // If more connections log in than one machine accepts at a time, jump hosts count, too.
    if (connections_of(job) > Logins::kMost) {
      std::vector<std::string> words = destination_words(host_, options_.ssh_arguments);
      words.insert(words.begin(), {"ssh", "-G"});
      route_.emplace([this, words] { return run_ssh(words); },
                     [this](std::string_view line) { (route_text_ += line) += '\n'; }, nullptr,
                     forgets());
    } else {
      machines_ = {text_of(host_)};
    }
    connect(guard_command(token_));
  }

  void watch(Watch& watch) override {
    if (route_) route_->watch(watch);
    for (const auto& connection : connections_) connection->session.watch(watch, machines_);
    keep_limit(watch);
    if (guard().ready && !guard().session.ended() && state_ != State::finishing) beat(watch);
  }

  void collect() override {
    if (route_ && route_->collect()) {
      machines_ = machines_of_login(route_text_);
      // "ssh -G" printed no machine, so the user's ssh settings are invalid. The login will report
      // the reason.
      if (machines_.empty()) machines_ = {text_of(host_)};
    }
    for (const auto& connection : connections_)
      if (connection->session.collect() && !sessions_.empty())
        contact_.broke(Clock::now(), connection->session.complaint());
  }

  bool checked() const override {
    return (state_ != State::checking && state_ != State::late) || broken();
  }
  std::string fault() const override {
    if (!report_.faults.empty()) return fmt::format("{}", fmt::join(report_.faults, "; "));
    if (!report_.no_folder.empty()) return report_.fault_of_folder(guard().session.complaint());
    for (const auto& connection : connections_) {
      const std::string& complaint = connection->session.complaint();
      if (!connection->session.ended()) continue;
      if (state_ != State::late || !complaint.empty()) return explain_ssh(host_, complaint);
      return fmt::format(
          "the host did not answer in {} s; try: ssh {} true; --patience allows more time",
          options_.patience, login_text(host_));
    }
    return {};
  }

  ReachedHost reached() const override {
    ReachedHost reached = report_.reached;
    if (reached.address.empty()) reached.address = host_.name;
    return reached;
  }
  bool has_mccl() const override { return !report_.mccl.empty(); }
  ChildProcess start_mccl(const std::vector<std::string>& words) override {
    std::vector<std::string> command = {
        "exec", "env", fmt::format("{}={}/", kMark, report_.reached.folder), report_.mccl};
    command.insert(command.end(), words.begin(), words.end());
    return run_ssh(ssh_words(host_, SshRole::session, guard().socket, options_.silence,
                             options_.ssh_arguments, command_line(command)));
  }

  std::optional<ChildProcess> request_forward(const std::string& flag,
                                              const std::string& from_and_to) override {
    std::vector<std::string> words = destination_words(host_, options_.ssh_arguments);
    words.insert(words.begin(), {"ssh", "-o", "ControlPath=" + guard().socket, "-O", "forward",
                                 flag, from_and_to});
    return run_ssh(words);
  }

  void prepare(const std::vector<NamedText>& files,
               const std::vector<Variables>& variables) override {
    std::vector<NamedText> texts = files;
    Processors& processors = report_.processors;
    if (report_.taskset.empty())
      processors.why_not = "the host has no program \"taskset\", or does not run Linux";
    const std::vector<Binding> bindings = bindings_of(options_.bind_to, processors, variables);
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      RankPlan rank = *ranks_[i];
      bindings_[rank.rank] = bindings[i];
      if (!bindings[i].processors.empty())
        rank.argv.insert(rank.argv.begin(),
                         {report_.taskset, "-c", list_of(bindings[i].processors)});
      texts.emplace_back(rank_file(rank.rank),
                         rank_script(rank, variables[i], report_.reached.folder, token_));
    }
    become(State::preparing);
    while (connections_.size() < connections_for(ranks_.size())) connect(holder_command(token_));
    send_to_guard(files_script(texts) + token_ + "\n");
  }

  bool prepared() const override {
    return broken() ||
           std::ranges::all_of(connections_, [](const auto& each) { return each->ready; });
  }

  ChildProcess start(const RankPlan& rank, int restarts,
                     const std::optional<TerminalPlan>& terminal) override {
    if (state_ == State::preparing) become(State::running);
    const Connection& connection = connection_of(rank);
    const SshRole role = terminal ? SshRole::terminal_session : SshRole::session;
    ChildProcess process =
        run_ssh(ssh_words(host_, role, connection.socket, options_.silence, options_.ssh_arguments,
                          rank_command(report_.reached.folder, rank.rank, restarts)),
                terminal);
    process.token = token_;
    sessions_[process.id] = &connection;
    return process;
  }

  /// Status 255 is that of a failed connection, or of the program.
  Exit ended(const ChildProcess& process, Exit exit, bool announced) override {
    guardian_.forget(process.id);
    const Connection& connection = *sessions_.at(process.id);
    guard().session.read();  // Handles "silence", which the guard reports before it ends ranks.
    const bool of_ssh = exit.status == kSshFailed && !announced;
    if (!of_ssh) contact_.rank_ended(Clock::now());
    exit.connection_lost = contact_.was_ended_there() || (of_ssh && ends(connection));
    sessions_.erase(process.id);
    return exit;
  }

  std::optional<Trouble> trouble() const override { return contact_.trouble(); }
  void signal(int number) override {
    const bool ends_ranks = number == SIGTERM || number == SIGKILL;
    if (ends_ranks && !sessions_.empty()) contact_.ending(Clock::now());
    if (number == SIGKILL) become(State::killing);
    if (!ends_ranks && !guard().answered)
      return;  // The host runs nothing yet that could receive the signal.
    if (!guard().session.ended()) {
      send_to_guard(std::ranges::find(kWords, number, &std::pair<int, const char*>::first)->second);
    } else if (ends_ranks) {
      for (const auto& [session, connection] : sessions_) ::kill(session, number);
    }
  }

  void finish() override {
    become(State::finishing);
    for (const auto& connection : connections_) {
      // No command runs on the host through this connection yet, so there is nothing to clean up.
      if (!connection->answered) connection->session.end(SIGTERM);
    }
    route_.reset();
    send_to_guard("finish\n");
    for (const auto& connection : connections_) connection->session.end_input();
  }

  bool finished() const override {
    return std::ranges::all_of(connections_,
                               [](const auto& each) { return each->session.ended(); });
  }

 private:
  /// An ssh connection that sessions share, and the session that keeps it open: first the guard.
  struct Connection {
    std::string socket;
    Dialogue session;
    bool answered = false;  ///< The host has run a command of the launcher.
    bool ready = false;     ///< The session has printed "ready": sessions of ranks may follow.
  };
  /// become() lists the transitions. Dialogue has the state of a single connection.
  enum class State {
    checking,   ///< The host checks whether it can run its ranks.
    checked,    ///< The host has sent all its results. The job may wait for other hosts.
    preparing,  ///< The host gets its files, and missing connections are opened.
    running,
    killing,  ///< The ranks were sent SIGKILL.
    finishing,
    late,  ///< A time limit has passed, and the connections were killed.
  };
  /// Enters a state and sets its time limit. All transitions are listed below. signal(SIGKILL) and
  /// finish() may be called in any state.
  ///
  ///   checking   --guard says "checked"-------> checked
  ///   checked    --prepare()------------------> preparing
  ///   preparing  --start() of the first rank--> running, once all connections are ready
  ///   any        --signal(SIGKILL)------------> killing; in finishing, only the limit changes
  ///   any        --finish()-------------------> finishing
  ///   checking, preparing, killing, finishing --limit--> late, which is the last state
  void become(State next) {
    if (state_ == State::late) return;
    if (state_ != State::finishing || next == State::late) state_ = next;
    const Clock::time_point now = Clock::now();
    limit_.reset();
    if (next == State::checking || next == State::preparing)
      limit_ = now + std::chrono::seconds(options_.patience);
    if (next == State::killing) limit_ = now + kForKill;
    if (next == State::finishing) limit_ = now + options_.grace + kForFinish;
  }

  void connect(const std::string& command) {
    const std::string socket =
        fmt::format("{}/ssh-{}-{}", guardian_.folder(), number_, connections_.size());
    const std::chrono::seconds patience(options_.patience);
    const bool more_patient = options_.patience > kUsualPatience;
    const auto words =
        ssh_words(host_, SshRole::master, socket, options_.silence, options_.ssh_arguments, command,
                  more_patient ? patience : std::min(patience, kUsualConnectTimeout));
    const std::size_t number = connections_.size();
    connections_.emplace_back(new Connection{
        socket,
        {[this, words] { return run_ssh(words); },
         [this, number](std::string_view line) { hear(*connections_[number], line); }, &logins_,
         forgets()}});
  }

  /// Lines without the token are output of the host's start-up files.
  void hear(Connection& from, std::string_view line) {
    if (!line.starts_with(token_ + " ")) return;
    line.remove_prefix(token_.size() + 1);
    from.answered = true;
    from.ready = from.ready || line == "ready";
    if (&from != &guard()) return;
    const std::string_view word = line.substr(0, line.find(' '));
    const std::string rest(line.substr(std::min(line.size(), word.size() + 1)));
    report_.take(word, rest, ranks_);
    if (word == "folder") {
      const auto grace = std::chrono::ceil<std::chrono::seconds>(options_.grace);
      send_to_guard(check_script(token_, ranks_, path_, grace, options_.silence) + token_ + "\n");
    }
    if (word == "ready") next_beat_ = Clock::now();
    if (word == "ready" || word == "beat") contact_.answered(Clock::now());
    if (word == "silence") contact_.ended_there();
    if (word == kOnMccl) had_mlx_on_mccl_ = true;
    if (word == "checked" && state_ == State::checking) become(State::checked);
  }

  Connection& guard() { return *connections_.front(); }
  const Connection& guard() const { return *connections_.front(); }
  void send_to_guard(const std::string& text) { guard().session.send(text); }
  Connection& connection_of(const RankPlan& rank) {
    const auto place =
        std::ranges::find_if(ranks_, [&](const RankPlan* r) { return r->rank == rank.rank; });
    return *connections_[static_cast<std::size_t>(place - ranks_.begin()) / kRanksOfConnection];
  }

  bool broken() const {
    return std::ranges::any_of(connections_,
                               [](const auto& each) { return each->session.ended(); });
  }

  /// Kills the connections once `limit_` has passed. While the host becomes ready and a connection
  /// waits for its turn to log in, sets the limit anew.
  void keep_limit(Watch& watch) {
    const auto waits_for_turn = [](const auto& each) { return each->session.waits_for_turn(); };
    const bool logs_in = state_ == State::checking || state_ == State::preparing;
    if (logs_in && !machines_.empty() && std::ranges::any_of(connections_, waits_for_turn))
      become(state_);
    if (limit_ && Clock::now() < *limit_) {
      watch.at(*limit_);
    } else if (limit_) {
      become(State::late);
      for (const auto& connection : connections_) connection->session.end(SIGKILL);
    }
  }

  void beat(Watch& watch) {
    const Clock::time_point now = Clock::now();
    if (now >= next_beat_) {
      contact_.beat(next_beat_, now);
      next_beat_ = now + kBetweenBeats;
      if (!guard().session.has_unsent()) send_to_guard("beat\n");
    }
    watch.at(next_beat_);
  }

  /// Waits up to 300 ms, because a session may end slightly before its connection.
  bool ends(const Connection& connection) {
    const Clock::time_point limit = Clock::now() + 300ms;
    while (!connection.session.ended() && !guard().session.ended() && Clock::now() < limit) {
      std::this_thread::sleep_for(10ms);
      collect();
    }
    return connection.session.ended() || guard().session.ended();
  }

  ChildProcess run_ssh(const std::vector<std::string>& words,
                       const std::optional<TerminalPlan>& terminal = {}) {
    ChildProcess process =
        start_ssh({.argv = words, .environment = options_.inherited, .terminal = terminal},
                  "start ranks on other machines");
    guardian_.watch(process.id);
    return process;
  }

  const std::size_t number_;  ///< Index into Job::hosts.
  Logins& logins_;
  const std::string path_;  ///< PATH that the job sets for the ranks. Empty: the host's own PATH.
  const std::string token_;
  /// The process `ssh -G`, and its output.
  std::optional<Dialogue> route_;
  std::string route_text_;
  std::vector<std::string> machines_;  ///< Machines that a login involves; empty until known.
  std::vector<std::unique_ptr<Connection>> connections_;
  GuardReport report_;
  State state_ = State::checking;
  std::optional<Clock::time_point> limit_;  ///< Time by which the state must have changed.
  Clock::time_point next_beat_ = {};
  Contact contact_;
  std::map<pid_t, const Connection*> sessions_;  ///< Keyed by the ssh process of each running rank.
};

}  // namespace

std::size_t connections_of(const Job& job) {
  std::size_t connections = 0;
  for (std::size_t host = 0; host < job.hosts.size(); ++host)
    connections += connections_for(job.ranks_on(host).size());
  return connections;
}

std::unique_ptr<RunningHost> make_ssh_host(const Job& job, std::size_t host,
                                           const RunOptions& options, Guardian& guardian,
                                           Logins& logins) {
  return std::make_unique<SshHost>(job, host, options, guardian, logins);
}

}  // namespace mccl::cli::launch
