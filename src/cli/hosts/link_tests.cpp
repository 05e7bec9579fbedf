#include "cli/hosts/link_tests.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/value_text.h"
#include "cluster/read_facts.h"

namespace mccl::cli::hosts {
namespace {

using namespace std::chrono_literals;
using cluster::value_at;
using nlohmann::json;

constexpr auto kForTests = 15s;
constexpr double kSecondsOfLink = 0.25;

/// A probe handles kAtOnce requests at a time, each in a few seconds.
std::chrono::seconds patience_for(const Messages& requests) {
  constexpr std::size_t kAtOnce = 512;
  std::size_t most = 0;
  for (const auto& of_host : requests) most = std::max(most, of_host.size());
  return kForTests * static_cast<std::chrono::seconds::rep>(1 + most / kAtOnce);
}

const Asked& target_of(const Inquiry& inquiry, const LinkTest& test) {
  return inquiry.asked()[static_cast<std::size_t>(test.to)];
}

std::uint16_t port_of(const Inquiry& inquiry, const LinkTest& test) {
  const auto& ports = target_of(inquiry, test).ports;
  return ports[std::min(test.port, ports.size() - 1)];
}

bool can_be_tried(const Inquiry& inquiry, const LinkTest& test) {
  return inquiry.has_probe(static_cast<std::size_t>(test.from)) &&
         inquiry.has_probe(static_cast<std::size_t>(test.to));
}

std::vector<std::size_t> indices_of(std::size_t count) {
  std::vector<std::size_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

/// Sends a request for each test whose two hosts have a probe, and passes the answers named `kind`
/// to `then`. `request_for` returns the request without its id and addresses, with port 0 to skip
/// the test. Gives up on hosts that do not answer in time.
void ask(Inquiry& inquiry, std::span<const LinkTest> tests, std::span<const std::size_t> indices,
         const char* kind, const std::function<json(std::size_t test)>& request_for,
         const std::function<void(std::size_t test, const json& answer)>& then) {
  Messages requests(inquiry.asked().size());
  for (const std::size_t i : indices) {
    const LinkTest& test = tests[i];
    if (!can_be_tried(inquiry, test)) continue;
    json request = request_for(i);
    if (request["port"] == 0) continue;
    request.update({{"id", i}, {"to", test.target}});
    if (!test.source.empty()) request["from"] = test.source;
    requests[static_cast<std::size_t>(test.from)].push_back(std::move(request));
  }
  const Messages answers = inquiry.probe(requests, patience_for(requests));
  for (std::size_t host = 0; host < requests.size(); ++host) {
    if (answers[host].size() < requests[host].size()) inquiry.give_up(host);
    for_each_answer(answers[host], kind, tests.size(), then);
  }
}

/// The round of a round-robin tournament in which players `a` and `b` meet, by the circle method:
/// with an even number, one player stays in place, and the others move around a circle.
int tournament_round(int players, int a, int b) {
  const int circle = players - (players % 2 == 0 ? 1 : 0);
  if (a == circle) return 2 * b % circle;
  if (b == circle) return 2 * a % circle;
  return (a + b) % circle;
}

}  // namespace

void for_each_answer(std::span<const json> answers, const char* kind, std::size_t tests,
                     const std::function<void(std::size_t test, const json&)>& then) {
  for (const json& each : answers) {
    const auto answer = each.find(kind);
    if (answer == each.end() || !answer->contains("id")) continue;
    const auto id = value_at<double>(*answer, "id");
    if (id >= 0 && id < static_cast<double>(tests)) then(static_cast<std::size_t>(id), *answer);
  }
}

void take_dialled(LinkResult& result, const json& answer) {
  result.good = value_at<bool>(answer, "good");
  const std::string why = printable(value_at<std::string>(answer, "why"));
  if (result.good || !why.empty()) result.why = result.good ? "" : why;
}

void take_timed(LinkResult& result, const json& answer) {
  result.latency_s = value_at<double>(answer, "latency_s");
  result.bytes_per_s = value_at<double>(answer, "bytes_per_s");
  result.good = result.bytes_per_s > 0;
}

std::vector<LinkResult> dial(Inquiry& inquiry, std::span<const LinkTest> tests) {
  std::vector<LinkResult> results(tests.size());
  ask(
      inquiry, tests, indices_of(tests.size()), "dialled",
      [&](std::size_t i) -> json {
        results[i].why = "no answer";
        return {{"do", "dial"}, {"port", port_of(inquiry, tests[i])}};
      },
      [&](std::size_t i, const json& answer) { take_dialled(results[i], answer); });
  // If a host was lost meanwhile, the reason why a connection to or from it failed is unknown. Such
  // a test counts as not tried.
  for (std::size_t i = 0; i < tests.size(); ++i) results[i].tried = can_be_tried(inquiry, tests[i]);
  return results;
}

std::vector<bool> send_packets(Inquiry& inquiry, std::span<const LinkTest> tests) {
  std::vector<bool> results(tests.size(), false);
  ask(
      inquiry, tests, indices_of(tests.size()), "packet",
      [&](std::size_t i) -> json {
        const std::uint16_t port = target_of(inquiry, tests[i]).packet_port;
        return {{"do", "packet"}, {"port", port}, {"bytes", tests[i].bytes}};
      },
      [&](std::size_t i, const json& answer) { results[i] = value_at<bool>(answer, "good"); });
  return results;
}

std::vector<LinkResult> time_links(Inquiry& inquiry, std::span<const LinkTest> tests,
                                   Clock::time_point limit, bool spares_jobs) {
  std::vector<LinkResult> results(tests.size());
  const auto runs_a_job = [&](int host) {
    return inquiry.asked()[static_cast<std::size_t>(host)].facts.ranks > 0;
  };
  std::vector<std::pair<int, int>> pairs;
  for (const LinkTest& test : tests) pairs.emplace_back(test.from, test.to);
  for (const std::vector<std::size_t>& round : rounds_of(pairs)) {
    if (Clock::now() >= limit) break;
    ask(
        inquiry, tests, round, "timed",
        [&](std::size_t i) -> json {
          if (spares_jobs && (runs_a_job(tests[i].from) || runs_a_job(tests[i].to)))
            return {{"port", 0}};
          results[i].tried = true;
          const std::uint16_t port = port_of(inquiry, tests[i]);
          return {{"do", "time"}, {"port", port}, {"seconds", kSecondsOfLink}};
        },
        [&](std::size_t i, const json& answer) { take_timed(results[i], answer); });
  }
  return results;
}

std::vector<std::vector<std::size_t>> rounds_of(std::span<const std::pair<int, int>> pairs) {
  int players = 2;
  for (const auto& [a, b] : pairs) players = std::max({players, a + 1, b + 1});
  std::vector<std::size_t> order = indices_of(pairs.size());
  // The pairs of one tournament round follow each other, so that the loop below can place them in
  // the same round.
  std::ranges::stable_sort(order, {}, [&](std::size_t i) {
    const auto& [a, b] = pairs[i];
    return std::tuple(tournament_round(players, a, b), a > b);
  });
  std::vector<std::vector<std::size_t>> rounds;
  std::vector<std::vector<bool>> busy;  // True if the host has a pair in the round; [round][host].
  for (const std::size_t i : order) {
    const auto a = static_cast<std::size_t>(pairs[i].first);
    const auto b = static_cast<std::size_t>(pairs[i].second);
    const auto is_free = [&](const std::vector<bool>& hosts) { return !hosts[a] && !hosts[b]; };
    const auto round = static_cast<std::size_t>(std::ranges::find_if(busy, is_free) - busy.begin());
    if (round == rounds.size()) {
      rounds.emplace_back();
      busy.emplace_back(static_cast<std::size_t>(players), false);
    }
    rounds[round].push_back(i);
    busy[round][a] = busy[round][b] = true;
  }
  return rounds;
}

}  // namespace mccl::cli::hosts
