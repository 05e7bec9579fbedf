#include "cli/hosts/trials.h"

#include <algorithm>
#include <utility>

#include "base/value_text.h"
#include "cli/hosts/rounds.h"

namespace mccl::cli::hosts {
namespace {

using namespace std::chrono_literals;

using nlohmann::json;

constexpr auto kForDials = 15s;
constexpr auto kForRound = 15s;
constexpr double kSecondsOfLink = 0.25;

/// Sends the requests. Gives up hosts that do not answer all of them in time, because each further
/// request would take as long.
Messages ask(Inquiry& inquiry, const Messages& requests, std::chrono::seconds patience) {
  Messages answers = inquiry.probe(requests, patience);
  for (std::size_t host = 0; host < requests.size(); ++host)
    if (answers[host].size() < requests[host].size()) inquiry.give_up(host);
  return answers;
}

/// Returns the time limit for the answers. A probe handles kAtOnce requests at a time, each in a
/// few seconds.
std::chrono::seconds patience_for(const Messages& requests) {
  constexpr std::size_t kAtOnce = 512;
  std::size_t most = 0;
  for (const auto& of_host : requests) most = std::max(most, of_host.size());
  return kForDials * static_cast<std::chrono::seconds::rep>(1 + most / kAtOnce);
}

std::uint16_t port_of(const Inquiry& inquiry, const Trial& trial) {
  const Asked& to = inquiry.asked()[static_cast<std::size_t>(trial.to)];
  return to.ports[std::min(trial.port, to.ports.size() - 1)];
}

bool can_be_tried(const Inquiry& inquiry, const Trial& trial) {
  return inquiry.has_probe(static_cast<std::size_t>(trial.from)) &&
         inquiry.has_probe(static_cast<std::size_t>(trial.to));
}

json request_for(const char* what, std::size_t id, const Trial& trial, std::uint16_t port) {
  json request = {{"do", what}, {"id", id}, {"to", trial.target}, {"port", port}};
  if (!trial.source.empty()) request["from"] = trial.source;
  return request;
}

double number_in(const json& answer, const char* key) {
  const auto found = answer.find(key);
  return found != answer.end() && found->is_number() ? found->get<double>() : 0;
}

std::string text_in(const json& answer, const char* key) {
  const auto found = answer.find(key);
  return found != answer.end() && found->is_string() ? found->get<std::string>() : "";
}

bool is_good(const json& answer) { return answer.value("good", json()) == true; }

/// Calls `then` with the index of the trial and the answer, for each answer of this kind.
template <typename Then>
void each_answer(const Messages& answers, const char* kind, std::size_t trials, Then&& then) {
  for (const auto& of_host : answers) {
    for (const json& answer : of_host) {
      const auto found = answer.find(kind);
      if (found == answer.end() || !found->is_object()) continue;
      const double number = found->contains("id") ? number_in(*found, "id") : -1;
      if (number >= 0 && number < static_cast<double>(trials))
        then(static_cast<std::size_t>(number), *found);
    }
  }
}

}  // namespace

std::vector<Dialled> dial(Inquiry& inquiry, std::span<const Trial> trials) {
  std::vector<Dialled> results(trials.size());
  Messages requests(inquiry.asked().size());
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const Trial& trial = trials[i];
    if (!can_be_tried(inquiry, trial)) continue;
    results[i].tried = true;
    results[i].why = "no answer";
    requests[static_cast<std::size_t>(trial.from)].push_back(
        request_for("dial", i, trial, port_of(inquiry, trial)));
  }
  each_answer(ask(inquiry, requests, patience_for(requests)), "dialled", trials.size(),
              [&](std::size_t i, const json& answer) {
                Dialled& result = results[i];
                result.good = is_good(answer);
                result.local = text_in(answer, "local");
                result.seconds = number_in(answer, "seconds");
                const std::string why = printable(text_in(answer, "why"));
                if (result.good || !why.empty()) result.why = result.good ? "" : why;
              });
  // If a host was lost meanwhile, the cause of a failed connection to or from it is unknown.
  for (std::size_t i = 0; i < trials.size(); ++i)
    if (!can_be_tried(inquiry, trials[i])) results[i].tried = false;
  return results;
}

std::vector<bool> send_packets(Inquiry& inquiry, std::span<const Trial> trials,
                               std::span<const int> bytes) {
  std::vector<bool> results(trials.size(), false);
  Messages requests(inquiry.asked().size());
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const Trial& trial = trials[i];
    if (!can_be_tried(inquiry, trial)) continue;
    const std::uint16_t port = inquiry.asked()[static_cast<std::size_t>(trial.to)].packet_port;
    if (port == 0) continue;
    json request = request_for("packet", i, trial, port);
    request["bytes"] = bytes[i];
    requests[static_cast<std::size_t>(trial.from)].push_back(std::move(request));
  }
  each_answer(ask(inquiry, requests, patience_for(requests)), "packet", trials.size(),
              [&](std::size_t i, const json& answer) { results[i] = is_good(answer); });
  return results;
}

std::vector<Timed> time_links(Inquiry& inquiry, std::span<const Trial> trials,
                              Clock::time_point limit) {
  std::vector<Timed> results(trials.size());
  std::vector<std::pair<int, int>> pairs;
  for (const Trial& trial : trials) pairs.emplace_back(trial.from, trial.to);
  for (const std::vector<std::size_t>& round : rounds_of(pairs)) {
    if (Clock::now() >= limit) break;
    Messages requests(inquiry.asked().size());
    for (const std::size_t i : round) {
      const Trial& trial = trials[i];
      if (!can_be_tried(inquiry, trial)) continue;
      results[i].tried = true;
      json request = request_for("time", i, trial, port_of(inquiry, trial));
      request["seconds"] = kSecondsOfLink;
      requests[static_cast<std::size_t>(trial.from)].push_back(std::move(request));
    }
    each_answer(ask(inquiry, requests, kForRound), "timed", trials.size(),
                [&](std::size_t i, const json& answer) {
                  results[i].latency_s = number_in(answer, "latency_s");
                  results[i].bytes_per_s = number_in(answer, "bytes_per_s");
                  results[i].good = results[i].bytes_per_s > 0;
                });
  }
  return results;
}

}  // namespace mccl::cli::hosts
