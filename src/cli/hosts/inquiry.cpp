#include "cli/hosts/inquiry.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <filesystem>

#include "base/value_text.h"
#include "cli/hosts/replies.h"
#include "cli/kit/dialogue.h"
#include "cli/kit/program.h"
#include "cli/probe/protocol.h"
#include "cluster/checks.h"
#include "rendezvous/connections/proof.h"

namespace mccl::cli::hosts {
namespace {

using namespace std::chrono_literals;
using cluster::Finding;
using cluster::HostFacts;
using cluster::Severity;
using nlohmann::json;

constexpr auto kForProbe = 10s;
constexpr int kCalls = 2;
/// Exceeds the time that a probe waits for interfaces that have just come up.
constexpr auto kForCalling = 4s;
constexpr auto kForHearing = 600ms;
/// Maximum number of bytes that a host may send until its facts are complete.
constexpr std::size_t kMostSaid = std::size_t{8} << 20;

/// Returns a shell script that reports whether mccl is found, and then becomes `mccl probe`. The
/// report begins on a new line, because a start-up file of the shell may have printed an unfinished
/// line. The caller must not send more text before the report has arrived: the shell reads ahead,
/// and would take text that is meant for the probe.
std::string finding_script(const std::string& token, const std::vector<std::string>& places) {
  return fmt::format(
      "LC_ALL=C; LANG=C; export LC_ALL LANG\n"
      "PATH=\"$PATH:/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/opt/homebrew/bin\"\n"
      "m=$(command -v mccl)\n"
      "for p in {}; do [ -n \"$m\" ] || {{ [ -x \"$p\" ] && m=$p; }}; done\n"
      "[ -n \"$m\" ] || {{ printf '\\n%s none\\n' {}; exit; }}\n"
      "printf '\\n%s probe %s\\n' {} \"$m\"; exec \"$m\" probe\n",
      command_line(places), token, token);
}

std::string error_text(const Dialogue& session) {
  return session.complaint().empty() ? "it ended without a message"
                                     : printable(session.complaint());
}

}  // namespace

/// The session with one host, and what the host has sent.
struct Inquiry::Line : Replies {
  std::unique_ptr<Dialogue> session;
  json request;  ///< The request for the host's facts; sent once the probe runs.
};

Inquiry::Inquiry(std::vector<Host> hosts, Reaching reaching, Signals& signals, Say say)
    : reaching_(std::move(reaching)),
      say_(std::move(say)),
      key_(rendezvous::make_job_key().view()),
      signals_(signals) {
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    Asked& asked = asked_.emplace_back();
    asked.host = std::move(hosts[i]);
    asked.facts.host = text_of(asked.host);
    lines_.push_back(std::make_unique<Line>());
  }
}

Inquiry::~Inquiry() {
  // Ends the input of all sessions first, so that they end in parallel. Afterwards, the destructor
  // of each session waits for its end.
  for (const auto& line : lines_)
    if (line->session) line->session->end_input();
}

void Inquiry::begin_to_ask(std::size_t host, std::chrono::seconds patience) {
  Line& line = *lines_[host];
  // The Python that mccl launch would use on the host.
  std::string python = asked_[host].host.python;
  if (python.empty()) python = find_python(path_of(reaching_.environment));
  line.request = {{"do", "tell"}, {"python", python}, {"patience", patience.count()}};
  line.session = std::make_unique<Dialogue>(
      [this, of = asked_[host].host] { return start_shell(of, reaching_); },
      [this, &line](std::string_view text) {
        const auto same = [&](const auto& other) { return other.get() == &line; };
        hear(static_cast<std::size_t>(std::ranges::find_if(lines_, same) - lines_.begin()), text);
      });
  // A virtual environment has mccl beside its Python.
  std::vector<std::string> places;
  if (python.find('/') != python.npos)
    places.push_back((std::filesystem::path(python).parent_path() / "mccl").string());
  places.push_back(this_program().string());
  line.session->send(finding_script(line.token, places));
  if (reaching_.verbose)
    say_(fmt::format("{}: being queried {}", text_of(asked_[host].host),
                     is_here(asked_[host].host) ? "with sh" : "with ssh"));
}

void Inquiry::hear(std::size_t host, std::string_view text) {
  Line& line = *lines_[host];
  const Replies::News news = line.take(text, asked_, host);
  if (news == Replies::News::probe) line.session->send(line.request.dump() + "\n");
  if (news == Replies::News::facts)
    say_(fmt::format("{}: {}", asked_[host].facts.host, summary_of(asked_[host].facts)));
}

void Inquiry::wait(Clock::time_point limit, const std::function<bool(std::size_t)>& done) {
  for (;;) {
    bool all = true;
    Watch watch;
    for (std::size_t host = 0; host < lines_.size(); ++host) {
      const Line& line = *lines_[host];
      if (line.session) line.session->collect();
      if (line.session && !line.session->ended() && !done(host)) all = false;
    }
    if (all || Clock::now() >= limit) return;
    for (const auto& line : lines_)
      if (line->session) line->session->watch(watch);
    watch.on(signals_.descriptor(), POLLIN, [this] { signals_.heed(); });
    watch.at(limit);
    watch.wait();
  }
}

std::string Inquiry::fault_of(std::size_t host, std::chrono::seconds patience) const {
  const Line& line = *lines_[host];
  if (line.is_missing) return "mccl is not installed on this host";
  if (line.other_build)
    return "the host has a different build of mccl, which uses a different protocol";
  if (line.heard_bytes > kMostSaid)
    return "mccl probe on this host sent more output than any valid answer contains";
  if (!line.odd.empty())
    return fmt::format("{} probe on this host sent an invalid answer: {}", line.program,
                       in_quotes(line.odd));
  if (line.session->ended())
    return line.program.empty() ? explain_ssh(asked_[host].host, line.session->complaint())
                                : fmt::format("{} probe does not run on this host: {}",
                                              line.program, error_text(*line.session));
  if (line.program.empty())
    return fmt::format("the host did not answer in {} s; try: ssh {} true", patience.count(),
                       login_text(asked_[host].host));
  return fmt::format("the host did not report all its facts in {} s; it was busy with {}",
                     patience.count(), line.busy.empty() ? "its start-up" : line.busy);
}

void Inquiry::gather(std::chrono::seconds patience) {
  make_room_for_shells(asked_.size());
  for (std::size_t host = 0; host < asked_.size(); ++host) begin_to_ask(host, patience);
  wait(Clock::now() + patience, [&](std::size_t host) {
    const Line& line = *lines_[host];
    return line.told || line.is_missing || line.other_build || line.heard_bytes > kMostSaid;
  });
  for (std::size_t host = 0; host < asked_.size(); ++host) {
    Line& line = *lines_[host];
    if (line.told) continue;
    asked_[host].fault = fault_of(host, patience);
    asked_[host].needs_install =
        line.is_missing || line.other_build || (!line.program.empty() && line.session->ended());
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

void Inquiry::start_probes() {
  const json request = {{"do", "listen"}, {"key", key_}};
  for (const auto& line : lines_)
    if (line->session) line->session->send(request.dump() + "\n");
  wait(Clock::now() + kForProbe, [&](std::size_t host) { return !asked_[host].ports.empty(); });
  for (std::size_t host = 0; host < asked_.size(); ++host) {
    Line& line = *lines_[host];
    if (!asked_[host].reached || !asked_[host].ports.empty()) continue;
    asked_[host].probe_fault = fmt::format(
        "{} probe did not start to listen: {}", line.program,
        line.session && line.session->ended() ? error_text(*line.session) : "no answer");
    line.session.reset();
  }
}

Messages Inquiry::probe(const Messages& requests, std::chrono::milliseconds patience) {
  for (std::size_t host = 0; host < asked_.size(); ++host) {
    Line& line = *lines_[host];
    line.answers.clear();
    for (const json& request : requests[host]) {
      if (!line.session) break;
      line.session->send(request.dump() + "\n");
      if (reaching_.verbose)
        say_(fmt::format("{}: {}", text_of(asked_[host].host), request.dump()));
    }
  }
  wait(Clock::now() + patience,
       [&](std::size_t host) { return lines_[host]->answers.size() >= requests[host].size(); });
  Messages answers;
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
                   ? "the connection to this host was lost during the tests"
                   : "the host stopped answering during the tests";
  asked.ports.clear();
  line.session.reset();
}

cluster::CallResults Inquiry::call() {
  Messages requests(asked_.size());
  cluster::CallResults all;
  for (std::size_t host = 0; host < asked_.size(); ++host) {
    if (!has_probe(host)) continue;
    requests[host] = {{{"do", "call"}, {"name", host}}};
    if (!asked_[host].hears_calls) all.deaf.push_back(static_cast<int>(host));
  }
  // Each discovery message is sent kCalls times, because a packet may be lost.
  for (int round = 0; round < kCalls; ++round) {
    probe(requests, kForCalling);
    wait(Clock::now() + kForHearing, [](std::size_t) { return false; });
  }
  for (const auto& line : lines_) {
    all.heard.insert(all.heard.end(), line->calls.heard.begin(), line->calls.heard.end());
    all.unanswered.insert(all.unanswered.end(), line->calls.unanswered.begin(),
                          line->calls.unanswered.end());
  }
  return all;
}

std::vector<Host> each_once(const std::vector<Host>& hosts) {
  std::vector<Host> once;
  for (const Host& host : hosts) {
    const auto same = std::ranges::find_if(
        once, [&](const Host& other) { return text_of(other) == text_of(host); });
    if (same == once.end()) {
      once.push_back(host);
    } else {
      same->addresses.insert(same->addresses.end(), host.addresses.begin(), host.addresses.end());
    }
  }
  return once;
}

std::vector<HostFacts> facts_of(const std::vector<Asked>& asked) {
  std::vector<HostFacts> facts;
  for (const Asked& each : asked)
    if (each.reached) facts.push_back(each.facts);
  return facts;
}

Finding finding_of_unreached(const Asked& asked) {
  if (asked.needs_install)
    return {.id = "mccl-unusable",
            .severity = Severity::problem,
            .what = asked.fault,
            .where = text_of(asked.host),
            .why = "programs that use MCCL cannot run on this host, and the host cannot be checked",
            .cure = cluster::how_to_install(asked.host.name)};
  return {
      .id = "host-unreachable",
      .severity = Severity::problem,
      .what = "the host cannot be queried",
      .where = text_of(asked.host),
      .why = "no rank can be started on this host: " + asked.fault,
      .cure = fmt::format("run ssh {} true, and repair the login until this command prints nothing",
                          login_text(asked.host))};
}

std::vector<Finding> findings_of_lost(const std::vector<Asked>& asked) {
  std::vector<Finding> findings;
  for (const Asked& each : asked) {
    if (each.lost.empty()) continue;
    findings.push_back(
        {.id = "host-lost",
         .severity = Severity::problem,
         .what = each.lost,
         .where = each.facts.host,
         .why = "a job fails if it loses a host; the remaining tests on this host were not run",
         .cure = fmt::format("find the cause with ssh {} dmesg, then run this command again",
                             login_text(each.host))});
  }
  return findings;
}

std::vector<Finding> findings_of_silent(const std::vector<Asked>& asked, const char* why) {
  std::vector<Finding> findings;
  for (const Asked& each : asked) {
    if (each.probe_fault.empty()) continue;
    findings.push_back(
        {.id = "probe-silent",
         .severity = Severity::warning,
         .what = each.probe_fault,
         .where = each.facts.host,
         .why = why,
         .cure = fmt::format("run ssh {} {} and read its output", login_text(each.host),
                             shell_word(shell_word(each.facts.mccl) + " probe"))});
  }
  return findings;
}

std::string summary_of(const HostFacts& facts) {
  std::string text = facts.os.empty() ? facts.kernel : facts.os;
  text += fmt::format(", {} cores", facts.cores);
  if (facts.memory_gib >= 1) text += fmt::format(", {:.0f} GiB", facts.memory_gib);
  const auto cables = std::ranges::count_if(facts.interfaces, [](const cluster::Interface& i) {
    return i.usable() && i.kind != cluster::InterfaceKind::loopback;
  });
  text += fmt::format(", {} interface{} up", cables, cables == 1 ? "" : "s");
  if (!facts.ports.empty()) {
    const auto used =
        std::ranges::count_if(facts.ports, [](const auto& p) { return !p.peer_id.empty(); });
    text += fmt::format(", {} of {} Thunderbolt ports are connected to computers", used,
                        facts.ports.size());
  }
  if (!facts.rdma.empty()) text += fmt::format(", {} RDMA devices", facts.rdma.size());
  if (!facts.gpus.empty())
    text += fmt::format(", {} x {}", facts.gpus.size(), facts.gpus.front().name);
  return printable(text);
}

}  // namespace mccl::cli::hosts
