#include "cli/kit/ssh.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <random>
#include <sstream>

#include "base/value_text.h"
#include "cli/kit/program.h"
#include "mccl/error.h"

namespace mccl::cli {
namespace {

constexpr std::array kOptions = {
    "BatchMode=yes",      "ControlPersist=no", "ClearAllForwardings=yes",
    "RemoteCommand=none", "EscapeChar=none",
};
constexpr std::string_view kExchange = "exchange_identification";
/// Number of keep-alive requests that ssh sends to a silent server, at equal intervals. One
/// interval after the last request, ssh ends.
constexpr int kQuestions = 3;

constexpr std::chrono::seconds kSilenceOfShells{8};
/// The standard streams of its process.
constexpr std::size_t kFilesOfShell = 3;
/// Output files and, while a shell is started, the shell's ends of its pipes.
constexpr std::size_t kOtherFiles = 32;

struct Complaint {
  std::string_view text;
  /// {0} stands for [user@]host, {1} for login_text(), {2} for the name in known_hosts.
  std::string_view meaning;
};

constexpr std::array kComplaints = {
    Complaint{
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host's key differs from the known one; if the change is expected, remove the old "
        "key with: ssh-keygen -R {2}"},
    Complaint{"Host key verification failed",
              "the host's key is not known on this machine; accept the key once with: ssh {1}"},
    Complaint{
        "Permission denied",
        "the host accepts none of your keys; install a key on it with ssh-copy-id {1}, or load "
        "one with ssh-add"},
    Complaint{
        "Could not resolve hostname",
        "the name of the host has no address; check its spelling, /etc/hosts and ~/.ssh/config"},
    Complaint{
        "Connection refused",
        "no ssh server answers on the host; start sshd (on macOS: Remote Login in the settings), "
        "or, if sshd listens at another port, give the host as {0}:PORT"},
    Complaint{"timed out",
              "the host cannot be reached; is it switched on and connected to this network?"},
    Complaint{"No route to host",
              "the host cannot be reached; is it switched on and connected to this network?"},
    Complaint{"Network is unreachable",
              "the host cannot be reached; is this machine connected to the host's network?"},
    Complaint{
        kExchange,
        "the host's ssh server drops logins repeatedly, perhaps because of many logins at the same "
        "time (MaxStartups in sshd_config). Try again, or: ssh {1}"},
};

const Complaint* known_complaint(std::string_view complaint) {
  const auto found = std::ranges::find_if(kComplaints, [&](const Complaint& known) {
    return complaint.find(known.text) != complaint.npos;
  });
  return found == kComplaints.end() ? nullptr : &*found;
}

std::string last_line(std::string_view text) {
  text = last_line_of(text);
  // Removes the prefix "ssh: ", because explain_ssh() adds this prefix itself.
  constexpr std::string_view kProgram = "ssh: ";
  if (text.starts_with(kProgram)) text.remove_prefix(kProgram.size());
  return printable(text);
}

std::string name_with_user(const Host& host) {
  return host.user.empty() ? host.name : host.user + "@" + host.name;
}

/// Returns the name under which ssh stores the host's key, quoted for a shell.
std::string name_in_known_hosts(const Host& host) {
  const bool usual = host.port == 0 || host.port == 22;
  return shell_word(usual ? host.name : fmt::format("[{}]:{}", host.name, host.port));
}

}  // namespace

std::string login_text(const Host& host) {
  const std::string port = host.port == 0 ? "" : fmt::format("-p {} ", host.port);
  return port + shell_word(name_with_user(host));
}

std::string_view last_line_of(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  return text.substr(text.rfind('\n') + 1);
}

std::vector<std::string> destination_words(const Host& host,
                                           const std::vector<std::string>& extra) {
  std::vector<std::string> words;
  if (!host.user.empty()) words.insert(words.end(), {"-l", host.user});
  if (host.port != 0) words.insert(words.end(), {"-p", std::to_string(host.port)});
  words.insert(words.end(), extra.begin(), extra.end());
  words.insert(words.end(), {"--", host.name});
  return words;
}

std::vector<std::string> ssh_words(const Host& host, SshRole role, const std::string& socket,
                                   std::chrono::seconds silence,
                                   const std::vector<std::string>& extra,
                                   const std::string& command,
                                   std::chrono::seconds connect_timeout) {
  std::vector<std::string> words = {"ssh"};
  const auto add_option = [&](std::string option) {
    words.emplace_back("-o");
    words.push_back(std::move(option));
  };
  for (const char* option : kOptions) add_option(option);
  const auto interval = (silence.count() + kQuestions) / (kQuestions + 1);
  add_option(fmt::format("ServerAliveInterval={}", interval));
  add_option(fmt::format("ServerAliveCountMax={}", kQuestions));
  add_option(role == SshRole::master ? "ControlMaster=yes" : "ControlMaster=no");
  add_option("ControlPath=" + socket);
  // LogLevel in the user's own ssh settings may be QUIET, which would hide why a host cannot be
  // reached.
  const bool session = role == SshRole::session || role == SshRole::terminal_session;
  add_option(session ? "LogLevel=ERROR" : "LogLevel=INFO");
  words.emplace_back(role == SshRole::terminal_session ? "-tt" : "-T");
  // ssh uses the first value of an option, so a ConnectTimeout in `extra` overrides this one.
  std::vector<std::string> options = extra;
  options.insert(options.end(), {"-o", fmt::format("ConnectTimeout={}", connect_timeout.count())});
  std::ranges::move(destination_words(host, options), std::back_inserter(words));
  words.push_back(command);
  return words;
}

ChildProcess start_ssh(ProcessPlan plan, std::string_view purpose) {
  const std::string name = plan.argv.front();
  plan.argv.front() = find_program(name, path_of(plan.environment, "/usr/bin:/bin"));
  if (plan.argv.front().empty())
    throw Error(
        fmt::format("cannot {}: there is no program \"{}\" on this machine", purpose, name));
  return start_process(plan);
}

ChildProcess start_shell(const Host& host, const Reaching& reaching) {
  std::vector<std::string> words = {"sh"};
  if (!is_here(host))
    words = ssh_words(host, SshRole::alone, "none", kSilenceOfShells, reaching.ssh_arguments,
                      "exec sh");
  return start_ssh({.argv = words, .environment = reaching.environment}, "query hosts");
}

void make_room_for_shells(std::size_t shells) {
  make_room_for_files(kFilesOfShell * shells + kOtherFiles,
                      fmt::format("querying {} hosts in parallel", shells), "query fewer hosts");
}

std::optional<Clock::duration> pause_before_login(int tries, std::string_view complaint) {
  using namespace std::chrono_literals;
  constexpr int kMostTries = 6;
  constexpr auto kFirstPause = 300ms;
  static std::minstd_rand random{std::random_device{}()};
  const Complaint* known = known_complaint(complaint);
  if (tries >= kMostTries || known == nullptr || known->text != kExchange) return {};
  const double chance = std::uniform_real_distribution<double>(0.5, 1.5)(random);
  return std::chrono::duration_cast<Clock::duration>(kFirstPause * (1 << (tries - 1)) * chance);
}

bool Logins::begin(const std::vector<std::string>& machines) {
  const auto full = [this](const std::string& machine) { return under_way_[machine] >= kMost; };
  if (std::ranges::any_of(machines, full)) return false;
  for (const std::string& machine : machines) ++under_way_[machine];
  return true;
}

void Logins::end(const std::vector<std::string>& machines) {
  for (const std::string& machine : machines) --under_way_[machine];
}

std::vector<std::string> machines_of_login(std::string_view settings) {
  std::vector<std::string> machines;
  std::string host;
  std::string port;
  std::istringstream lines{std::string(settings)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t blank = line.find(' ');
    if (blank == line.npos) continue;
    const std::string name = line.substr(0, blank);
    const std::string value = line.substr(blank + 1);
    if (name == "hostname") host = value;
    if (name == "port") port = value;
    if (value == "none") continue;
    // A proxy command counts as a machine, so all logins that use it share one limit.
    if (name == "proxycommand") machines.push_back(value);
    if (name != "proxyjump") continue;
    std::istringstream hops(value);
    for (std::string hop; std::getline(hops, hop, ',');) machines.push_back(hop);
  }
  if (!host.empty()) machines.push_back(host + " " + port);
  std::ranges::sort(machines);
  machines.erase(std::unique(machines.begin(), machines.end()), machines.end());
  return machines;
}

std::string explain_ssh(const Host& host, std::string_view complaint) {
  if (is_here(host))
    return complaint.empty() ? "its shell ended without a message" : printable(complaint);
  const std::string login = login_text(host);
  if (const Complaint* known = known_complaint(complaint)) {
    return fmt::format("{} (ssh: {})",
                       fmt::format(fmt::runtime(known->meaning), name_with_user(host), login,
                                   name_in_known_hosts(host)),
                       last_line(complaint));
  }
  if (last_line(complaint).empty()) return "ssh ended without a message; try: ssh " + login;
  return fmt::format("ssh: {}; try: ssh {}", last_line(complaint), login);
}

}  // namespace mccl::cli
