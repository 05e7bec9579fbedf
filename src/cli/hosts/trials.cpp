#include "cli/hosts/trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/value_text.h"
#include "cluster/read_facts.h"

namespace mccl::cli::hosts {
namespace {

using namespace std::chrono_literals;

constexpr auto kForDials = 15s;
constexpr auto kForPackets = 15s;
constexpr auto kForRound = 15s;
constexpr double kSecondsOfLink = 0.25;

std::uint16_t port_of(const Inquiry& inquiry, const Trial& trial) {
  const Asked& to = inquiry.asked()[static_cast<std::size_t>(trial.to)];
  return to.ports[std::min(trial.port, to.ports.size() - 1)];
}

bool can_be_tried(const Inquiry& inquiry, const Trial& trial) {
  return inquiry.has_probe(static_cast<std::size_t>(trial.from)) &&
         inquiry.has_probe(static_cast<std::size_t>(trial.to));
}

std::string source_of(const Trial& trial) { return trial.source.empty() ? "-" : trial.source; }

using Commands = std::vector<std::vector<std::string>>;

/// Calls `then` with the number of the trial and the words of each answer of that kind.
template <typename Then>
void each_answer(const Commands& answers, std::string_view kind, std::size_t trials, Then&& then) {
  for (const auto& of_host : answers) {
    for (const std::string& answer : of_host) {
      const auto words = cluster::words_of(answer);
      if (words.size() < 3 || words[0] != kind) continue;
      const auto number = static_cast<std::size_t>(cluster::count_of(words[1]));
      if (number < trials) then(number, words, answer);
    }
  }
}

}  // namespace

std::vector<Dialled> dial(Inquiry& inquiry, std::span<const Trial> trials) {
  std::vector<Dialled> results(trials.size());
  Commands commands(inquiry.asked().size());
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const Trial& trial = trials[i];
    if (!can_be_tried(inquiry, trial)) continue;
    results[i].tried = true;
    results[i].why = "no answer";
    commands[static_cast<std::size_t>(trial.from)].push_back(fmt::format(
        "dial {} {} {} {}", i, source_of(trial), trial.target, port_of(inquiry, trial)));
  }
  each_answer(inquiry.probe(commands, kForDials), "dialled", trials.size(),
              [&](std::size_t i, const auto& words, const std::string& answer) {
                Dialled& result = results[i];
                result.good = words[2] == "good" && words.size() == 5;
                if (result.good) {
                  result.why.clear();
                  result.local = words[3];
                  result.seconds = parse_number(words[4]).value_or(0);
                } else if (words[2] == "bad" && words.size() > 3) {
                  result.why = printable(
                      answer.substr(static_cast<std::size_t>(words[3].data() - answer.data())));
                }
              });
  return results;
}

std::vector<bool> send_packets(Inquiry& inquiry, std::span<const Trial> trials,
                               std::span<const int> bytes) {
  std::vector<bool> results(trials.size(), false);
  Commands commands(inquiry.asked().size());
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const Trial& trial = trials[i];
    if (!can_be_tried(inquiry, trial)) continue;
    commands[static_cast<std::size_t>(trial.from)].push_back(
        fmt::format("packet {} {} {} {} {}", i, source_of(trial), trial.target,
                    inquiry.asked()[static_cast<std::size_t>(trial.to)].packet_port, bytes[i]));
  }
  each_answer(inquiry.probe(commands, kForPackets), "packet", trials.size(),
              [&](std::size_t i, const auto& words, const std::string&) {
                results[i] = words[2] == "good";
              });
  return results;
}

std::vector<Timed> time_links(Inquiry& inquiry, std::span<const Trial> trials) {
  std::vector<Timed> results(trials.size());
  std::vector<std::size_t> left;
  for (std::size_t i = 0; i < trials.size(); ++i)
    if (can_be_tried(inquiry, trials[i])) left.push_back(i);
  while (!left.empty()) {
    Commands commands(inquiry.asked().size());
    std::set<int> busy;
    std::vector<std::size_t> later;
    for (const std::size_t i : left) {
      const Trial& trial = trials[i];
      if (busy.contains(trial.from) || busy.contains(trial.to)) {
        later.push_back(i);
        continue;
      }
      busy.insert({trial.from, trial.to});
      commands[static_cast<std::size_t>(trial.from)].push_back(
          fmt::format("time {} {} {} {} {}", i, source_of(trial), trial.target,
                      port_of(inquiry, trial), kSecondsOfLink));
    }
    each_answer(inquiry.probe(commands, kForRound), "timed", trials.size(),
                [&](std::size_t i, const auto& words, const std::string&) {
                  if (words.size() != 4) return;
                  results[i].latency_s = parse_number(words[2]).value_or(0);
                  results[i].bytes_per_s = parse_number(words[3]).value_or(0);
                  results[i].good = results[i].bytes_per_s > 0;
                });
    left = std::move(later);
  }
  return results;
}

}  // namespace mccl::cli::hosts
