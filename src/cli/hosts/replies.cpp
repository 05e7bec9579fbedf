#include "cli/hosts/replies.h"

#include <algorithm>

#include "base/json_text.h"
#include "base/value_text.h"
#include "cli/probe/protocol.h"
#include "cluster/read_facts.h"
#include "mccl/error.h"

namespace mccl::cli::hosts {
namespace {

using cluster::value_at;
using nlohmann::json;
using probe::now_in_epoch;

constexpr std::size_t kMostAnswers = 100'000;
constexpr std::size_t kLongestPath = 1024;

/// In seconds, negative if the clock is behind, 0 if it may be right: the host read its clock at
/// some time between `asked_at` and now.
double clock_off(double shown, double asked_at) {
  if (shown < asked_at) return shown - asked_at;
  return std::max(0.0, shown - now_in_epoch());
}

/// Ports are checked, because they are passed on to other hosts.
std::optional<std::uint16_t> port_in(const json& value, int least) {
  if (!value.is_number_integer()) return {};
  const auto port = value.get<std::int64_t>();
  if (port < least || port > 65535) return {};
  return static_cast<std::uint16_t>(port);
}

/// A host without UDP reports port 0 for packets.
void take_ports(Asked& asked, const json& listening) {
  constexpr std::size_t kMostPorts = 8;
  if (!asked.ports.empty() || !listening.is_object()) return;
  const json all = listening.value("ports", json());
  const auto packets = port_in(listening.value("packets", json()), 0);
  if (!all.is_array() || all.size() > kMostPorts || !packets) return;
  std::vector<std::uint16_t> ports;
  for (const json& each : all) {
    const auto port = port_in(each, 1);
    if (!port) return;
    ports.push_back(*port);
  }
  asked.packet_port = *packets;
  asked.hears_calls = value_at<bool>(listening, "calls");
  asked.ports = std::move(ports);
}

/// Parses an answer of host `at`. For example, {"at": "c0", "name": 1, "from": "c1"} says that
/// interface c0 of host `at` received a call that host 1 sent through its interface c1. `hosts` is
/// the number of hosts. Returns nothing for an invalid answer.
std::optional<cluster::Heard> hearing_of(const json& said, std::size_t at, std::size_t hosts) {
  const auto here = value_at<std::string>(said, "at");
  const auto there = value_at<std::string>(said, "from");
  const json name = said.is_object() ? said.value("name", json()) : json();
  if (!name.is_number_integer() || name < 0 || name >= hosts || here.empty() || there.empty())
    return {};
  return cluster::Heard{{static_cast<int>(at), here}, {name.get<int>(), there}};
}

}  // namespace

Replies::News Replies::take(std::string_view line, std::vector<Asked>& asked, std::size_t host) {
  if (!told) heard_bytes += line.size() + 1;
  if (program.empty()) return take_place(line);
  try {
    return take_answer(parse_json(line, "mccl probe", "an answer"), asked, host);
  } catch (const InvalidArgument&) {
    if (odd.empty() && !line.empty()) odd = line.substr(0, 60);
    return News::none;
  }
}

Replies::News Replies::take_place(std::string_view line) {
  constexpr std::string_view kProbe = " probe ";
  if (!line.starts_with(token)) return News::none;
  const std::string_view rest = line.substr(token.size());
  is_missing = rest == " none";
  if (!rest.starts_with(kProbe)) return News::none;
  program = printable(rest.substr(kProbe.size()), kLongestPath);
  asked_at = now_in_epoch();
  return News::probe;
}

Replies::News Replies::take_answer(const json& answer, std::vector<Asked>& asked,
                                   std::size_t host) {
  if (!answer.is_object()) return News::none;
  if (answer.value("protocol", json(probe::kProtocol)) != probe::kProtocol) other_build = true;
  if (const json clock = answer.value("clock", json()); clock.is_number()) {
    clock_off_s = clock_off(clock.get<double>(), asked_at);
  } else if (const json started = answer.value("busy", json()); started.is_string()) {
    busy = printable(started.get<std::string>());
  } else if (answer.contains("told")) {
    if (told || other_build) return News::none;
    Asked& each = asked[host];
    each.facts = cluster::read_facts(text_of(each.host), answer["told"]);
    each.facts.mccl = program;
    each.facts.clock_off_s = clock_off_s.value_or(0);
    if (!clock_off_s) note_odd(each.facts, "mccl probe", "the time", "");
    each.reached = told = true;
    return News::facts;
  } else if (answer.contains("listening")) {
    take_ports(asked[host], answer["listening"]);
  } else if (const bool heard = answer.contains("heard"); heard || answer.contains("unanswered")) {
    auto& list = heard ? calls.heard : calls.unanswered;
    const auto hearing = hearing_of(answer[heard ? "heard" : "unanswered"], host, asked.size());
    if (hearing && list.size() < kMostAnswers) list.push_back(*hearing);
  } else if (answers.size() < kMostAnswers) {
    answers.push_back(answer);
  }
  return News::none;
}

}  // namespace mccl::cli::hosts
