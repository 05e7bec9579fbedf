#include "cli/launch/ssh_host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "base/value_text.h"
#include "cli/launch/remote_script.h"
#include "cli/launch/ssh.h"
#include "mccl/error.h"
#include "rendezvous/job_key.h"

namespace mccl::cli::launch {
namespace {

using namespace std::chrono_literals;

/// sshd lets a connection have ten sessions, unless told otherwise (MaxSessions); one keeps it
/// open.
constexpr std::size_t kRanksOfConnection = 9;
constexpr auto kForCheck = 30s;
constexpr auto kForKill = 5s;
constexpr auto kForFinish = 5s;
constexpr auto kBetweenBeats = 1s;
constexpr int kSshFailed = 255;
constexpr std::size_t kLongestComplaint = 8192;

}  // namespace

SshHost::SshHost(const Host& host, std::size_t number, const std::vector<const Rank*>& ranks,
                 const Variables& inherited, Guardian& guardian, SshOptions options)
    : host_(host),
      number_(number),
      ranks_(ranks),
      inherited_(inherited),
      guardian_(guardian),
      options_(std::move(options)),
      token_("mccl-" + rendezvous::make_job_key().substr(0, 16)),
      limit_(Clock::now() + kForCheck),
      contact_(host, options_.silence) {
  connections_.reserve(1 + ranks.size() / kRanksOfConnection);
  connect(guard_command(token_));
  const auto grace = std::chrono::ceil<std::chrono::seconds>(options_.grace);
  tell(check_script(token_, ranks_, options_.path, grace, options_.silence) + token_ + "\n");
}

Process SshHost::start_ssh(const std::vector<std::string>& words,
                           const std::optional<TerminalPlan>& terminal) {
  ProcessPlan plan{.argv = words,
                   .directory = {},
                   .environment = inherited_,
                   .terminal = {},
                   .echo = terminal && terminal->echo};
  const auto path = inherited_.find("PATH");
  plan.argv[0] = find_program("ssh", path == inherited_.end() ? "/usr/bin" : path->second, "");
  if (plan.argv[0].empty())
    throw Error("there is no program \"ssh\" on this machine, which starts ranks on others");
  if (terminal) plan.terminal = terminal->size;
  Process process = launch::start(plan);
  guardian_.watch(process.id);
  return process;
}

void SshHost::connect(const std::string& command) {
  Connection& connection = connections_.emplace_back();
  connection.socket =
      fmt::format("{}/ssh-{}-{}", guardian_.folder(), number_, connections_.size() - 1);
  connection.process = start_ssh(ssh_words(host_, SshRole::master, connection.socket,
                                           options_.silence, options_.arguments, command),
                                 {});
}

void SshHost::watch(Watch& watch) {
  const Clock::time_point now = Clock::now();
  for (Connection& connection : connections_) {
    if (connection.process.output.get() >= 0)
      watch.on(connection.process.output.get(), POLLIN, [this, &connection] { read(connection); });
    if (connection.process.error.get() >= 0)
      watch.on(connection.process.error.get(), POLLIN, [this, &connection] { read(connection); });
    if (!connection.unsent.empty() && connection.process.input.get() >= 0)
      watch.on(connection.process.input.get(), POLLOUT, [this, &connection] { send(connection); });
  }
  const bool waits = !checked() || killing_ || finishing_ || !prepared();
  if (waits && now >= limit_) {
    late_ = true;
    for (const Connection& connection : connections_)
      if (!connection.ended) ::kill(connection.process.id, SIGKILL);
  } else if (waits) {
    watch.at(limit_);
  }
  if (!connections_.front().ready || finishing_ || lost()) return;
  if (now >= next_beat_) {
    contact_.beat(next_beat_, now);
    next_beat_ = now + kBetweenBeats;
    if (connections_.front().unsent.empty()) tell("beat\n");
  }
  watch.at(next_beat_);
}

void SshHost::read(Connection& connection) {
  std::array<char, 4096> bytes;
  const ssize_t errors = read_some(connection.process.error.get(), bytes.data(), bytes.size());
  if (errors > 0 && connection.complaint.size() < kLongestComplaint)
    connection.complaint.append(bytes.data(), static_cast<std::size_t>(errors));
  if (errors == 0) connection.process.error.close();
  const std::span<char> space = connection.said.space();
  const ssize_t n = read_some(connection.process.output.get(), space.data(), space.size());
  if (n == 0) connection.process.output.close();
  if (n <= 0) return;
  connection.said.filled(static_cast<std::size_t>(n));
  std::string_view lines = connection.said.take_lines();
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    hear(connection, lines.substr(0, end));
    lines.remove_prefix(end == lines.npos ? lines.size() : end + 1);
  }
}

/// What does not begin with the token comes from the host's own start-up files.
void SshHost::hear(Connection& connection, std::string_view line) {
  if (!line.starts_with(token_ + " ")) return;
  line.remove_prefix(token_.size() + 1);
  const std::string word(line.substr(0, line.find(' ')));
  const std::string rest(line.substr(std::min(line.size(), word.size() + 1)));
  if (word == "folder") reached_.folder = rest;
  if (word == "ready") {
    connection.ready = true;
    next_beat_ = Clock::now();
  }
  if (word == "ready" || word == "beat") contact_.answered(Clock::now());
  if (word == "silence") contact_.ended_there();
  if (word == "checked") checked_ = true;
  if (word == "from") {
    std::istringstream addresses(rest);
    std::string port;
    addresses >> reached_.launcher >> port >> reached_.address;
    if (reached_.address.empty()) reached_.address = host_.name;
  }
  if (word == "taken")
    reached_.taken.insert(static_cast<std::uint16_t>(std::strtoul(rest.c_str(), nullptr, 16)));
  const auto number = parse_integer(rest);
  if (!word.starts_with("no-") || !number || *number < 0 ||
      static_cast<std::size_t>(*number) >= ranks_.size())
    return;
  const Rank& rank = *ranks_[static_cast<std::size_t>(*number)];
  const std::string directory = in_quotes(rank.directory);
  if (word == "no-directory") {
    faults_.push_back(
        fmt::format("it has no directory {} for you; make it there, or give another with "
                    "--cwd, or \"cwd\" in the hostfile",
                    directory));
  } else if (word == "no-program") {
    faults_.push_back(
        fmt::format("it has no program {} that you may run; install it there, or give "
                    "the whole path (of Python: --python, or \"python\" in the hostfile)",
                    in_quotes(rank.argv.front())));
  } else if (script_of(rank) != nullptr) {
    faults_.push_back(
        fmt::format("it has no script {} in {}; copy it there, or give another "
                    "directory with --cwd",
                    in_quotes(*script_of(rank)), directory));
  }
}

void SshHost::tell(const std::string& text) {
  connections_.front().unsent += text;
  send(connections_.front());
}

void SshHost::send(Connection& connection) {
  const int input = connection.process.input.get();
  if (input < 0) return;
  const ssize_t n = ::write(input, connection.unsent.data(), connection.unsent.size());
  if (n > 0) connection.unsent.erase(0, static_cast<std::size_t>(n));
  if (n < 0 && errno != EAGAIN && errno != EINTR) connection.unsent.clear();
  if (finishing_ && connection.unsent.empty()) connection.process.input.close();
}

void SshHost::collect() {
  for (Connection& connection : connections_) {
    if (connection.ended || !launch::collect(connection.process.id)) continue;
    while (connection.process.error.get() >= 0) {
      const std::size_t before = connection.complaint.size();
      read(connection);
      if (connection.complaint.size() == before) break;
    }
    guardian_.forget(connection.process.id);
    connection.ended = true;
    if (!sessions_.empty()) contact_.broke(Clock::now(), connection.complaint);
  }
}

std::string SshHost::fault() const {
  if (checked_ && (!lost() || !faults_.empty())) return fmt::format("{}", fmt::join(faults_, "; "));
  const std::string& complaint = connections_.front().complaint;
  if (late_ && complaint.empty())
    return fmt::format("it did not answer in {} s; try: ssh {}", kForCheck.count(), host_.name);
  return explain_ssh(host_, complaint);
}

void SshHost::prepare(const Files& files, const std::vector<const Rank*>& ranks,
                      const std::vector<Variables>& variables) {
  std::vector<NamedText> texts = {{kRingFile, files.ring}};
  if (!files.devices.empty()) texts.emplace_back(kDevicesFile, files.devices);
  for (std::size_t i = 0; i < ranks.size(); ++i)
    texts.emplace_back(rank_file(ranks[i]->rank),
                       rank_script(*ranks[i], variables[i], reached_.folder));
  limit_ = Clock::now() + kForCheck;
  for (std::size_t held = kRanksOfConnection; held < ranks.size(); held += kRanksOfConnection)
    connect(holder_command(token_));
  tell(files_script(token_, texts) + token_ + "\n");
}

bool SshHost::prepared() const {
  return std::ranges::all_of(connections_, [](const Connection& c) { return c.ready || c.ended; });
}

SshHost::Connection& SshHost::connection_of(const Rank& rank) {
  const auto place =
      std::ranges::find_if(ranks_, [&](const Rank* r) { return r->rank == rank.rank; });
  return connections_[static_cast<std::size_t>(place - ranks_.begin()) / kRanksOfConnection];
}

Process SshHost::start(const Rank& rank, const std::optional<TerminalPlan>& terminal) {
  const Connection& connection = connection_of(rank);
  const SshRole role = terminal ? SshRole::terminal_session : SshRole::session;
  Process process =
      start_ssh(ssh_words(host_, role, connection.socket, options_.silence, options_.arguments,
                          rank_command(reached_.folder, rank.rank)),
                terminal);
  sessions_[process.id] = &connection;
  return process;
}

/// ssh says 255 for whatever went wrong with the connection; a program may say so too.
Exit SshHost::ended(const Process& process, Exit exit) {
  guardian_.forget(process.id);
  const Connection& connection = *sessions_.at(process.id);
  read(connections_.front());  // the guard says that it ends ranks before it does
  if (exit.status != kSshFailed) contact_.rank_ended(Clock::now());
  exit.connection_lost =
      contact_.was_ended_there() || (exit.status == kSshFailed && ends(connection));
  sessions_.erase(process.id);
  return exit;
}

/// Waits a moment for it, as the sessions of a connection end together with it.
bool SshHost::ends(const Connection& connection) {
  const Clock::time_point limit = Clock::now() + 300ms;
  while (!connection.ended && !lost() && Clock::now() < limit) {
    std::this_thread::sleep_for(10ms);
    collect();
  }
  return connection.ended || lost();
}

void SshHost::signal(int number) {
  if (!sessions_.empty()) contact_.ending(Clock::now());
  if (number == SIGKILL) {
    killing_ = true;
    limit_ = Clock::now() + kForKill;
  }
  if (lost()) {
    for (const auto& [session, connection] : sessions_) ::kill(session, number);
  } else {
    tell(number == SIGKILL ? "kill\n" : "term\n");
  }
}

void SshHost::finish() {
  finishing_ = true;
  // Nothing is there yet to be ended: who is still connecting is not waited for.
  for (const Connection& connection : connections_)
    if (!checked_ && !connection.ended) ::kill(connection.process.id, SIGTERM);
  limit_ = Clock::now() + options_.grace + kForFinish;
  tell("finish\n");
  for (Connection& connection : connections_)
    if (connection.unsent.empty()) connection.process.input.close();
}

bool SshHost::finished() const {
  return std::ranges::all_of(connections_, [](const Connection& c) { return c.ended; });
}

}  // namespace mccl::cli::launch
