#include "cli/launch/ssh_host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "base/value_text.h"
#include "cli/kit/find_program.h"
#include "cli/kit/shell_words.h"
#include "cli/launch/remote_script.h"
#include "mccl/error.h"
#include "rendezvous/connections/proof.h"

namespace mccl::cli::launch {
namespace {

using namespace std::chrono_literals;

/// sshd allows ten sessions per connection by default (MaxSessions). One keeps the connection open,
/// and one is reserved for the launcher (start_mccl).
constexpr std::size_t kRanksOfConnection = 8;
constexpr auto kForKill = 5s;
constexpr auto kForFinish = 5s;
constexpr auto kBetweenBeats = 1s;
constexpr int kSshFailed = 255;
constexpr std::string_view kMoreRoom =
    "free some space there, or make sshd set another TMPDIR for its sessions (SetEnv)";

/// Returns the word that makes the guard send the signal.
const char* word_for(int signal) {
  switch (signal) {
    case SIGUSR1:
      return "usr1\n";
    case SIGUSR2:
      return "usr2\n";
    case SIGQUIT:
      return "quit\n";
    case SIGKILL:
      return "kill\n";
    default:
      return "term\n";
  }
}

/// True if the job has more connections than may log in at the same time.
bool is_crowded(const Job& job) {
  std::size_t connections = 0;
  for (std::size_t host = 0; host < job.hosts.size(); ++host)
    connections += connections_for(job.ranks_on(host).size());
  return connections > static_cast<std::size_t>(Logins::kMost);
}

/// Returns the PATH that the job sets for the ranks of the host. Empty if it sets none.
std::string path_for(const Job& job, std::size_t host) {
  const Host& first = job.entry_of(*job.ranks_on(host).front());
  return path_of(first.environment, path_of(job.request.environment));
}

}  // namespace

std::size_t connections_for(std::size_t ranks) {
  return std::max<std::size_t>(1, (ranks + kRanksOfConnection - 1) / kRanksOfConnection);
}

SshHost::SshHost(const Job& job, std::size_t host, const RunOptions& options, Guardian& guardian,
                 Logins& logins)
    : RunningHost(job, host, options, guardian),
      number_(host),
      logins_(logins),
      path_(path_for(job, host)),
      token_("mccl-" + rendezvous::make_job_key().substr(0, 16)),
      route_([this](std::string_view line) { (route_text_ += line) += '\n'; },
             [this] {
               machines_ = machines_of_login(route_text_);
               // The user's ssh settings are faulty. The login will report the reason.
               if (machines_.empty()) machines_ = {text_of(host_)};
             }),
      limit_(Clock::now() + std::chrono::seconds(options.patience)),
      contact_(host_, options.silence) {
  if (is_crowded(job)) {
    route_.begin(start_ssh(ssh_settings_words(host_, options_.ssh_arguments)));
  } else {
    machines_ = {text_of(host_)};
  }
  connect(guard_command(token_));
}

/// All steps between states. A signal may end the job at any time.
///
///   checking   --guard says "checked"-------> checked
///   checked    --prepare()------------------> preparing
///   preparing  --start() of the first rank--> running, once all connections are ready
///   any        --signal(SIGKILL)------------> killing; finishing only gets the limit of killing
///   any        --finish()-------------------> finishing
///   checking, preparing, killing, finishing --limit--> late, which is the last state
void SshHost::become(State next) {
  if (state_ == State::late) return;
  if (state_ != State::finishing || next == State::late) state_ = next;
  const Clock::time_point now = Clock::now();
  switch (next) {
    case State::checking:
    case State::preparing:
      limit_ = now + std::chrono::seconds(options_.patience);
      break;
    case State::killing:
      limit_ = now + kForKill;
      break;
    case State::finishing:
      limit_ = now + options_.grace + kForFinish;
      break;
    case State::checked:
    case State::running:
    case State::late:
      limit_.reset();
  }
}

Process SshHost::start_ssh(const std::vector<std::string>& words,
                           const std::optional<TerminalPlan>& terminal) {
  ProcessPlan plan{.argv = words,
                   .directory = {},
                   .environment = options_.inherited,
                   .terminal = {},
                   .echo = terminal && terminal->echo};
  plan.argv[0] = find_program("ssh", path_of(options_.inherited, "/usr/bin"));
  if (plan.argv[0].empty())
    throw Error(
        "cannot start ranks on other machines: there is no program \"ssh\" on this machine");
  if (terminal) plan.terminal = terminal->size;
  Process process = start_process(plan);
  guardian_.watch(process.id);
  return process;
}

void SshHost::connect(const std::string& command) {
  const std::string socket =
      fmt::format("{}/ssh-{}-{}", guardian_.folder(), number_, connections_.size());
  const std::chrono::seconds patience(options_.patience);
  const bool more_patient = options_.patience > kUsualPatience;
  const auto words =
      ssh_words(host_, SshRole::master, socket, options_.silence, options_.ssh_arguments, command,
                more_patient ? patience : std::min(patience, kUsualConnectTimeout));
  connections_.push_back(std::make_unique<SshConnection>(
      socket, token_, logins_, guardian_, [this, words] { return start_ssh(words); },
      [this](SshConnection& from, std::string_view line) { hear(from, line); }));
}

void SshHost::watch(Watch& watch) {
  route_.watch(watch);
  for (const auto& connection : connections_) connection->watch(watch, machines_);
  keep_limit(watch);
  if (guard().ready() && state_ != State::finishing) beat(watch);
}

/// Kills the connections once the limit has passed. While a connection waits for its turn to log
/// in, the time to become ready has not begun.
void SshHost::keep_limit(Watch& watch) {
  const auto waits_for_turn = [](const auto& each) { return each->waits_for_turn(); };
  const bool logs_in = state_ == State::checking || state_ == State::preparing;
  if (logs_in && !machines_.empty() && std::ranges::any_of(connections_, waits_for_turn))
    become(state_);
  if (limit_ && Clock::now() < *limit_) {
    watch.at(*limit_);
  } else if (limit_) {
    become(State::late);
    for (const auto& connection : connections_) connection->end(SIGKILL);
  }
}

void SshHost::beat(Watch& watch) {
  const Clock::time_point now = Clock::now();
  if (now >= next_beat_) {
    contact_.beat(next_beat_, now);
    next_beat_ = now + kBetweenBeats;
    if (!guard().session().has_unsent()) tell_guard("beat\n");
  }
  watch.at(next_beat_);
}

void SshHost::hear(const SshConnection& from, std::string_view line) {
  const std::string word(line.substr(0, line.find(' ')));
  const std::string rest(line.substr(std::min(line.size(), word.size() + 1)));
  if (&from != &guard()) return;
  if (word == "folder") {
    reached_.folder = rest;
    const auto grace = std::chrono::ceil<std::chrono::seconds>(options_.grace);
    tell_guard(check_script(token_, ranks_, path_, grace, options_.silence) + token_ + "\n");
  }
  if (word == "no-folder") no_folder_ = rest;
  if (word == "cores") hear_of_cores(rest);
  if (word == "mccl") mccl_ = rest;
  if (word == "full")
    faults_.push_back(
        fmt::format("it cannot write the job's files to {}: no space is left there; {}",
                    in_quotes(rest), kMoreRoom));
  if (word == "ready") next_beat_ = Clock::now();
  if (word == "ready" || word == "beat") contact_.answered(Clock::now());
  if (word == "silence") contact_.ended_there();
  if (word == "checked" && state_ == State::checking) become(State::checked);
  if (word == kOnMccl) had_mlx_on_mccl_ = true;
  if (word == "from") {
    std::istringstream addresses(rest);
    std::string port;
    addresses >> reached_.launcher >> port >> reached_.address;
    if (reached_.address.empty()) reached_.address = host_.name;
  }
  if (word == "taken")
    reached_.taken.insert(static_cast<std::uint16_t>(std::strtoul(rest.c_str(), nullptr, 16)));
  const auto number = parse_integer(rest);
  if (word.starts_with("no-") && number && *number >= 0 &&
      static_cast<std::size_t>(*number) < ranks_.size())
    hear_what_is_missing(word, static_cast<std::size_t>(*number));
}

/// Parses "TASKSET LIST PLACE...".
void SshHost::hear_of_cores(const std::string& text) {
  std::istringstream words(text);
  std::string list;
  std::string places;
  words >> taskset_ >> list;
  std::getline(words, places);
  processors_ = processors_of(list, places);
}

void SshHost::hear_what_is_missing(const std::string& word, std::size_t number) {
  const Rank& rank = *ranks_[number];
  const std::string directory = in_quotes(rank.directory);
  if (word == "no-directory") {
    faults_.push_back(
        fmt::format("it has no directory {} that you may enter; create it there, or give another "
                    "with --cwd, or \"cwd\" in the hostfile",
                    directory));
  } else if (word == "no-program") {
    faults_.push_back(
        fmt::format("it has no program {} that you may run; install it there, or give the full "
                    "path (for Python: --python, or \"python\" in the hostfile)",
                    in_quotes(rank.argv.front())));
  } else if (script_of(rank) != nullptr) {
    faults_.push_back(
        fmt::format("it has no script {} in {}; copy it there, or give another "
                    "directory with --cwd",
                    in_quotes(*script_of(rank)), directory));
  }
}

bool SshHost::broken() const {
  return std::ranges::any_of(connections_, [](const auto& each) { return each->ended(); });
}

void SshHost::collect() {
  const pid_t route = route_.id();
  if (route_.reap()) guardian_.forget(route);
  for (const auto& connection : connections_)
    if (connection->collect() && !sessions_.empty())
      contact_.broke(Clock::now(), connection->complaint());
}

std::string SshHost::fault() const {
  if (!faults_.empty()) return fmt::format("{}", fmt::join(faults_, "; "));
  if (!no_folder_.empty()) {
    std::string_view cause = last_line_of(guard().complaint());
    if (const std::size_t colon = cause.rfind(": "); colon != cause.npos)
      cause.remove_prefix(colon + 2);
    return fmt::format("it cannot create a folder for the job's files in {} (mktemp: {}); {}",
                       in_quotes(no_folder_), printable(cause), kMoreRoom);
  }
  for (const auto& connection : connections_) {
    if (!connection->ended()) continue;
    if (state_ != State::late || !connection->complaint().empty())
      return explain_ssh(host_, connection->complaint());
    return fmt::format("it did not answer in {} s; try: ssh {} true; --patience allows more time",
                       options_.patience, host_.name);
  }
  return {};
}

std::optional<Process> SshHost::start_mccl(const std::vector<std::string>& words) {
  if (mccl_.empty()) return {};
  std::vector<std::string> command = {"exec", "env", fmt::format("{}={}/", kMark, reached_.folder),
                                      mccl_};
  command.insert(command.end(), words.begin(), words.end());
  return start_ssh(ssh_words(host_, SshRole::session, guard().socket(), options_.silence,
                             options_.ssh_arguments, command_line(command)));
}

std::optional<Process> SshHost::request_forward(const std::string& flag,
                                                const std::string& from_and_to) {
  return start_ssh(
      ssh_forward_words(host_, guard().socket(), options_.ssh_arguments, flag, from_and_to));
}

void SshHost::prepare(const Files& files, const std::vector<Variables>& variables) {
  std::vector<NamedText> texts = {{kRingFile, files.ring}};
  if (!files.devices.empty()) texts.emplace_back(kDevicesFile, files.devices);
  if (taskset_.empty())
    processors_.why_not = "it has no program \"taskset\", or does not run Linux";
  const std::vector<Binding> bindings = bindings_of(options_.bind_to, processors_, variables);
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Rank rank = *ranks_[i];
    bindings_[rank.rank] = bindings[i];
    if (!bindings[i].processors.empty())
      rank.argv.insert(rank.argv.begin(), {taskset_, "-c", list_of(bindings[i].processors)});
    texts.emplace_back(rank_file(rank.rank),
                       rank_script(rank, variables[i], reached_.folder, token_));
  }
  become(State::preparing);
  while (connections_.size() < connections_for(ranks_.size())) connect(holder_command(token_));
  tell_guard(files_script(texts) + token_ + "\n");
}

bool SshHost::prepared() const {
  return broken() ||
         std::ranges::all_of(connections_, [](const auto& each) { return each->ready(); });
}

SshConnection& SshHost::connection_of(const Rank& rank) {
  const auto place =
      std::ranges::find_if(ranks_, [&](const Rank* r) { return r->rank == rank.rank; });
  return *connections_[static_cast<std::size_t>(place - ranks_.begin()) / kRanksOfConnection];
}

Process SshHost::start(const Rank& rank, const std::optional<TerminalPlan>& terminal) {
  if (state_ == State::preparing) become(State::running);
  const SshConnection& connection = connection_of(rank);
  const SshRole role = terminal ? SshRole::terminal_session : SshRole::session;
  Process process =
      start_ssh(ssh_words(host_, role, connection.socket(), options_.silence,
                          options_.ssh_arguments, rank_command(reached_.folder, rank.rank)),
                terminal);
  process.token = token_;
  sessions_[process.id] = &connection;
  return process;
}

/// Status 255 is ambiguous: ssh exits with it if the connection fails, and a program may do so too.
Exit SshHost::ended(const Process& process, Exit exit, bool told) {
  guardian_.forget(process.id);
  const SshConnection& connection = *sessions_.at(process.id);
  guard().session().read();  // The guard reports silence before it ends ranks.
  const bool of_ssh = exit.status == kSshFailed && !told;
  if (!of_ssh) contact_.rank_ended(Clock::now());
  exit.connection_lost = contact_.was_ended_there() || (of_ssh && ends(connection));
  sessions_.erase(process.id);
  return exit;
}

/// Returns true if the connection has ended. Waits up to 300 ms, because a connection ends at about
/// the same time as its sessions.
bool SshHost::ends(const SshConnection& connection) {
  const Clock::time_point limit = Clock::now() + 300ms;
  while (!connection.ended() && !guard().ended() && Clock::now() < limit) {
    std::this_thread::sleep_for(10ms);
    collect();
  }
  return connection.ended() || guard().ended();
}

void SshHost::signal(int number) {
  const bool ends_ranks = number == SIGTERM || number == SIGKILL;
  if (ends_ranks && !sessions_.empty()) contact_.ending(Clock::now());
  if (number == SIGKILL) become(State::killing);
  if (!guard().ended()) {
    tell_guard(word_for(number));
  } else if (ends_ranks) {
    for (const auto& [session, connection] : sessions_) ::kill(session, number);
  }
}

void SshHost::finish() {
  become(State::finishing);
  for (const auto& connection : connections_) {
    // Such a connection has nothing running on the host yet.
    if (!connection->open()) connection->end(SIGTERM);
  }
  route_.end(SIGTERM);
  tell_guard("finish\n");
  for (const auto& connection : connections_) connection->session().tell_no_more();
}

bool SshHost::finished() const {
  return std::ranges::all_of(connections_, [](const auto& each) { return each->ended(); });
}

}  // namespace mccl::cli::launch
