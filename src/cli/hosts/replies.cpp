#include "cli/hosts/replies.h"

#include <algorithm>
#include <chrono>

#include "base/json_text.h"
#include "cli/probe/secret.h"
#include "cluster/read_facts.h"
#include "mccl/error.h"

namespace mccl::cli::hosts {
namespace {

using nlohmann::json;

constexpr std::size_t kMostAnswers = 100'000;

double now_in_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Returns the minimum error of a host's clock in seconds; negative if the clock is behind, 0 if it
/// may be right. The exact error is unknown, because the host read `shown` from its clock at some
/// time between `asked_at` and now.
double clock_off(double shown, double asked_at) {
  if (shown < asked_at) return shown - asked_at;
  return std::max(0.0, shown - now_in_epoch());
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
  program = rest.substr(kProbe.size());
  asked_at = now_in_epoch();
  return News::probe;
}

Replies::News Replies::take_answer(const json& answer, std::vector<Asked>& asked,
                                   std::size_t host) {
  if (!answer.is_object()) return News::none;
  if (const auto protocol = answer.find("protocol");
      protocol != answer.end() && *protocol != probe::kProtocol) {
    other_build = true;
  }
  if (const auto clock = answer.find("clock"); clock != answer.end() && clock->is_number()) {
    clock_off_s = clock_off(clock->get<double>(), asked_at);
  } else if (const auto started = answer.find("busy");
             started != answer.end() && started->is_string()) {
    busy = started->get<std::string>();
  } else if (const auto facts = answer.find("told"); facts != answer.end()) {
    if (told || other_build) return News::none;
    settle(asked[host], *facts);
    told = true;
    return News::facts;
  } else if (const auto listening = answer.find("listening"); listening != answer.end()) {
    take_ports(asked[host], *listening);
  } else if (const bool heard = answer.contains("heard"); heard || answer.contains("unanswered")) {
    auto& list = heard ? calls.heard : calls.unanswered;
    const auto hearing = hearing_of(answer[heard ? "heard" : "unanswered"], host, asked.size());
    if (hearing && list.size() < kMostAnswers) list.push_back(*hearing);
  } else if (answers.size() < kMostAnswers) {
    answers.push_back(answer);
  }
  return News::none;
}

void Replies::settle(Asked& asked, const json& facts) const {
  asked.facts = cluster::read_facts(text_of(asked.host), facts);
  asked.facts.mccl = program;
  asked.facts.clock_off_s = clock_off_s.value_or(0);
  if (!clock_off_s) note_odd(asked.facts, "mccl probe", "the time", "");
  asked.reached = true;
}

}  // namespace mccl::cli::hosts
