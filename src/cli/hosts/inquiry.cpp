#include "cli/hosts/inquiry.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <optional>

#include "base/value_text.h"
#include "cli/hosts/gather_script.h"
#include "cli/hosts/python_probe.h"
#include "cli/launch/python.h"
#include "cli/launch/this_program.h"
#include "cli/launch/words.h"
#include "cluster/read_facts.h"
#include "cluster/table.h"
#include "mccl/error.h"
#include "rendezvous/job_key.h"

namespace mccl::cli::hosts {
namespace {

using namespace std::chrono_literals;
using cluster::HostFacts;

constexpr auto kForProbe = 10s;
constexpr int kCalls = 2;
/// A probe waits for interfaces that have only just come up.
constexpr auto kForCalling = 4s;
constexpr auto kForHearing = 600ms;
constexpr std::size_t kMostAnswers = 100'000;
constexpr std::size_t kLongestAnswer = 1000;

/// A line for people, as soon as a host has answered.
std::string summary_of(const HostFacts& facts) {
  std::string text = facts.os.empty() ? facts.kernel : facts.os;
  text += fmt::format(", {} cores", facts.cores);
  if (facts.memory_gib >= 1) text += fmt::format(", {:.0f} GiB", facts.memory_gib);
  const auto cables = std::ranges::count_if(facts.interfaces, [](const cluster::Interface& i) {
    return i.usable() && i.medium != cluster::Medium::loopback;
  });
  text += fmt::format(", {} interface{} up", cables, cables == 1 ? "" : "s");
  if (!facts.ports.empty()) {
    const auto used =
        std::ranges::count_if(facts.ports, [](const auto& p) { return !p.peer.empty(); });
    text += fmt::format(", {} of {} Thunderbolt ports lead to computers", used, facts.ports.size());
  }
  if (!facts.rdma.empty()) text += fmt::format(", {} RDMA devices", facts.rdma.size());
  if (!facts.gpus.empty())
    text += fmt::format(", {} x {}", facts.gpus.size(), facts.gpus.front().name);
  return printable(text);
}

double now_in_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The host's clock showed that second at some time between `asked_at` and now. Nothing for what is
/// no time.
std::optional<double> clock_off(std::string_view shown, double asked_at) {
  const auto seconds = parse_integer(shown);
  if (!seconds || *seconds < 0) return {};
  const auto there = static_cast<double>(*seconds);
  if (there + 1 < asked_at) return there + 1 - asked_at;
  return std::max(0.0, there - now_in_epoch());
}

/// "listening PORT... PACKET-PORT"; what other hosts are told of has to be ports.
void take_ports(Asked& asked, std::string_view text) {
  constexpr std::size_t kMostPorts = 8;
  const auto words = cluster::words_of(text);
  if (!asked.ports.empty() || words.size() < 3 || words.size() > kMostPorts) return;
  std::vector<std::uint16_t> ports;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto port = parse_integer(words[i]);
    // A host without UDP has no port for packets.
    const bool may_be_none = i + 1 == words.size();
    if (!port || *port < (may_be_none ? 0 : 1) || *port > 65535) return;
    ports.push_back(static_cast<std::uint16_t>(*port));
  }
  asked.packet_port = ports.back();
  ports.pop_back();
  asked.ports = std::move(ports);
}

}  // namespace

std::vector<cluster::Finding> findings_of_lost(const std::vector<Asked>& asked) {
  std::vector<cluster::Finding> findings;
  for (const Asked& each : asked) {
    if (each.lost.empty()) continue;
    findings.push_back(
        {.severity = cluster::Severity::problem,
         .what = each.lost,
         .where = each.facts.host,
         .why = "a host that goes away takes the job with it; what was to be tried there was not",
         .cure = fmt::format("look what happened: ssh {} dmesg; then ask again", each.host.name)});
  }
  return findings;
}

/// The one that mccl launch takes.
std::string Inquiry::python_of(const Host& host) const {
  if (!host.python.empty()) return host.python;
  const auto path = reaching_.environment.find("PATH");
  return launch::find_python(path == reaching_.environment.end() ? "" : path->second);
}

/// What goes on with one host.
struct Inquiry::Line {
  explicit Line(std::string word) : token(std::move(word)), said(token) {}

  const std::string token;
  cluster::Said said;
  std::unique_ptr<Session> session;
  bool asked = false;
  bool gathered = false;
  bool probe_starts = false;
  double asked_at = 0;  ///< By this machine's clock.
  std::optional<double> clock_off_s;
  std::vector<std::string> answers;
};

Inquiry::Inquiry(std::vector<Host> hosts, Reaching reaching, launch::Signals& signals,
                 Progress progress)
    : reaching_(std::move(reaching)),
      progress_(std::move(progress)),
      key_(rendezvous::make_job_key()),
      signals_(signals) {
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    Asked& asked = asked_.emplace_back();
    asked.host = std::move(hosts[i]);
    asked.facts.host = launch::text_of(asked.host);
    lines_.push_back(std::make_unique<Line>("mccl-" + rendezvous::make_job_key().substr(0, 16)));
  }
}

Inquiry::~Inquiry() {
  // All at once begin to end.
  for (const auto& line : lines_)
    if (line->session) line->session->tell_no_more();
}

void Inquiry::begin_to_ask(std::size_t host) {
  Line& line = *lines_[host];
  line.session =
      std::make_unique<Session>(asked_[host].host, reaching_, [this, &line](std::string_view text) {
        const auto same = [&](const auto& other) { return other.get() == &line; };
        hear(static_cast<std::size_t>(std::ranges::find_if(lines_, same) - lines_.begin()), text);
      });
  line.session->tell(fmt::format("echo {} here\n", line.token));
  if (reaching_.verbose)
    progress_(fmt::format("{}: is asked, {}", launch::text_of(asked_[host].host),
                          launch::is_here(asked_[host].host) ? "by sh" : "by ssh"));
}

void Inquiry::hear(std::size_t host, std::string_view text) {
  Line& line = *lines_[host];
  if (line.probe_starts) {
    if (text.starts_with("listening ")) {
      take_ports(asked_[host], text);
    } else if (line.answers.size() < kMostAnswers) {
      line.answers.emplace_back(text.substr(0, kLongestAnswer));
    }
    return;
  }
  const std::string_view told = line.said.hear(text);
  if (told == "here" && !line.asked) {
    line.asked = true;
    line.asked_at = now_in_epoch();
    line.session->tell(gather_script({.token = line.token,
                                      .python = python_of(asked_[host].host),
                                      .places = {launch::this_program().string()}}));
  } else if (told.starts_with("clock ")) {
    line.clock_off_s = clock_off(told.substr(6), line.asked_at);
  } else if (told == "gathered" && !line.gathered) {
    line.gathered = true;
    settle(host);
  } else if (told == "probe") {
    line.probe_starts = true;
  }
}

/// All that the host has said is read.
void Inquiry::settle(std::size_t host) {
  Asked& asked = asked_[host];
  const Line& line = *lines_[host];
  asked.facts = cluster::read_facts(launch::text_of(asked.host), line.said);
  asked.facts.clock_off_s = line.clock_off_s.value_or(0);
  if (!line.clock_off_s) note_odd(asked.facts, "date +%s", "seconds", "");
  asked.reached = true;
  if (!line.gathered) {
    asked.facts.odd.push_back(
        {.severity = cluster::Severity::problem,
         .what = line.said.too_much()
                     ? "it says more of itself than any host has to say"
                     : fmt::format(
                           "it did not end telling of itself; it was busy with {}",
                           line.said.unfinished().empty() ? "its start" : line.said.unfinished()),
         .where = asked.facts.host,
         .why = "what it has not told is missing from what follows",
         .cure = fmt::format("look what hangs there: ssh {} ps aux", asked.host.name)});
  }
  progress_(fmt::format("{}: {}", asked.facts.host, summary_of(asked.facts)));
}

void Inquiry::wait(Clock::time_point limit, const std::function<bool(std::size_t)>& done) {
  for (;;) {
    bool all = true;
    launch::Watch watch;
    for (std::size_t host = 0; host < lines_.size(); ++host) {
      Line& line = *lines_[host];
      if (!line.session || line.session->ended() || done(host)) continue;
      all = false;
    }
    if (all || Clock::now() >= limit) return;
    for (const auto& line : lines_)
      if (line->session) line->session->watch(watch);
    watch.on(signals_.descriptor(), POLLIN, [this] {
      for (const int number : signals_.take())
        if (number != SIGCHLD && number != SIGWINCH)
          throw Error(fmt::format("signal {} ({}) ended it", number, ::strsignal(number)));
    });
    watch.at(limit);
    watch.wait();
  }
}

void Inquiry::gather(std::chrono::seconds patience) {
  make_room_for_sessions(asked_.size());
  for (std::size_t host = 0; host < asked_.size(); ++host) begin_to_ask(host);
  const auto done = [&](std::size_t host) {
    const Line& line = *lines_[host];
    return line.gathered || line.said.too_much();
  };
  wait(Clock::now() + patience, done);
  for (std::size_t host = 0; host < asked_.size(); ++host) {
    Line& line = *lines_[host];
    if (line.gathered) continue;
    if (line.asked && line.said.section("machine") != nullptr) {
      settle(host);
    } else {
      asked_[host].fault = line.session->ended()
                               ? line.session->complaint()
                               : fmt::format("it did not answer in {} s; try: ssh {} true",
                                             patience.count(), asked_[host].host.name);
    }
    line.session.reset();
  }
}

void Inquiry::forget_unreached() {
  for (std::size_t host = asked_.size(); host-- > 0;) {
    if (asked_[host].reached) continue;
    asked_.erase(asked_.begin() + static_cast<std::ptrdiff_t>(host));
    lines_.erase(lines_.begin() + static_cast<std::ptrdiff_t>(host));
  }
}

std::string Inquiry::probe_command(std::size_t host) const {
  const HostFacts& facts = asked_[host].facts;
  if (!facts.mccl.empty()) return fmt::format("exec {} probe", launch::shell_word(facts.mccl));
  if (!facts.versions.contains("python")) return {};
  return fmt::format("p={}; command -v \"$p\" > /dev/null 2>&1 || p=python3; exec \"$p\" -c {}",
                     launch::shell_word(python_of(asked_[host].host)),
                     launch::shell_word(python_probe()));
}

void Inquiry::start_probes(const std::vector<std::uint16_t>& ports) {
  for (std::size_t host = 0; host < asked_.size(); ++host) {
    const Line& line = *lines_[host];
    if (!line.session || probe_command(host).empty()) continue;
    line.session->tell(fmt::format("echo {} probe; {}\n", line.token, probe_command(host)));
  }
  const Clock::time_point limit = Clock::now() + kForProbe;
  const auto has_none = [&](std::size_t host) { return probe_command(host).empty(); };
  wait(limit, [&](std::size_t host) { return has_none(host) || lines_[host]->probe_starts; });
  // Only now: a shell reads ahead what the probe is to read.
  for (const auto& line : lines_)
    if (line->session && line->probe_starts)
      line->session->tell(fmt::format("{}\nlisten {}\n", key_, fmt::join(ports, " ")));
  wait(limit, [&](std::size_t host) { return has_none(host) || !asked_[host].ports.empty(); });
  for (std::size_t host = 0; host < asked_.size(); ++host) {
    Line& line = *lines_[host];
    if (!asked_[host].reached || !asked_[host].ports.empty()) continue;
    asked_[host].probe_fault =
        has_none(host) ? "mccl is not there, and no Python"
                       : fmt::format("{} does not start: {}",
                                     asked_[host].facts.mccl.empty() ? "Python's stand-in for mccl"
                                                                     : asked_[host].facts.mccl,
                                     line.session ? line.session->complaint() : "");
    line.session.reset();
  }
}

std::vector<std::vector<std::string>> Inquiry::probe(
    const std::vector<std::vector<std::string>>& commands, std::chrono::milliseconds patience) {
  std::vector<std::size_t> expected(asked_.size(), 0);
  for (std::size_t host = 0; host < asked_.size(); ++host) {
    Line& line = *lines_[host];
    line.answers.clear();
    if (!line.session) continue;
    for (const std::string& command : commands[host]) {
      line.session->tell(command + "\n");
      if (reaching_.verbose)
        progress_(fmt::format("{}: {}", launch::text_of(asked_[host].host), command));
      ++expected[host];
    }
  }
  wait(Clock::now() + patience, [&](std::size_t host) {
    const auto answers = std::ranges::count_if(
        lines_[host]->answers, [](const std::string& text) { return !text.starts_with("heard "); });
    return static_cast<std::size_t>(answers) >= expected[host];
  });
  std::vector<std::vector<std::string>> answers;
  for (const auto& line : lines_) answers.push_back(line->answers);
  return answers;
}

bool Inquiry::has_probe(std::size_t host) const {
  return !asked_[host].ports.empty() && lines_[host]->session && !lines_[host]->session->ended();
}

void Inquiry::give_up(std::size_t host) {
  Asked& asked = asked_[host];
  if (asked.ports.empty()) return;
  Line& line = *lines_[host];
  asked.lost = line.session && line.session->ended()
                   ? "the connection to it was lost while it was looked at"
                   : "it stopped answering while it was looked at";
  asked.ports.clear();
  line.session.reset();
}

std::vector<cluster::Heard> Inquiry::call() {
  std::vector<std::vector<std::string>> commands(asked_.size());
  for (std::size_t host = 0; host < asked_.size(); ++host)
    if (has_probe(host)) commands[host] = {fmt::format("call {}", host)};
  std::vector<cluster::Heard> heard;
  // A packet may get lost.
  for (int round = 0; round < kCalls; ++round) {
    probe(commands, kForCalling);
    wait(Clock::now() + kForHearing, [](std::size_t) { return false; });
    for (std::size_t host = 0; host < lines_.size(); ++host) {
      for (const std::string& answer : lines_[host]->answers) {
        const auto words = cluster::words_of(answer);
        if (words.size() != 4 || words[0] != "heard") continue;
        const auto from = static_cast<std::size_t>(cluster::count_of(words[2]));
        if (from >= asked_.size()) continue;
        heard.push_back({{static_cast<int>(host), std::string(words[1])},
                         {static_cast<int>(from), std::string(words[3])}});
      }
    }
  }
  return heard;
}

}  // namespace mccl::cli::hosts
