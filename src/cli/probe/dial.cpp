#include "cli/probe/dial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "cli/probe/listeners.h"

namespace mccl::cli::probe {
namespace {

using namespace std::chrono_literals;

constexpr auto kToConnect = 3s;
constexpr int kRounds = 64;
/// A fast link has shown its rate after this many bytes, if they took at least kSoonest seconds and
/// kRoundTrips round trips, because TCP starts slowly.
constexpr std::size_t kPlenty = std::size_t{32} << 20;
constexpr double kSoonest = 0.05;
constexpr double kRoundTrips = 50;

/// Result of the mutual proof of the key.
struct Introduced {
  std::string nonce;  ///< This side's nonce.
  std::string why;    ///< Why it failed. Empty: both sides know the key.
};

Introduced introduce(Stream& stream, const Secret& secret, const char* purpose) {
  Introduced result{.nonce = make_nonce(), .why = ""};
  const auto fail = [&](const char* why) {
    result.why = stream.timed_out()
                     ? fmt::format("it accepts the connection, but sends nothing for {} s",
                                   kToConnect.count())
                     : why;
    return result;
  };
  const auto greeting = stream.read_line();
  if (!greeting || !greeting->starts_with(kGreeting)) return fail("another program answers there");
  const std::string theirs = greeting->substr(std::strlen(kGreeting));
  const std::string line = fmt::format("{} {} {}\n", result.nonce, purpose,
                                       secret.prove("dials", {theirs, result.nonce, purpose}));
  stream.write(line.data(), line.size());
  const std::string expected = "ok " + secret.prove("answers", {theirs, result.nonce, purpose});
  if (stream.read_line() != expected) return fail("a probe of another run answers there");
  return result;
}

double measure_latency(Stream& stream) {
  std::vector<double> rounds;
  for (int i = 0; i < kRounds; ++i) {
    const Clock::time_point begin = Clock::now();
    char byte = 'x';
    if (!stream.write(&byte, 1) || stream.read(&byte, 1) != 1) return 0;
    rounds.push_back(seconds_between(begin, Clock::now()));
  }
  std::ranges::nth_element(rounds, rounds.begin() + kRounds / 2);
  return rounds[kRounds / 2] / 2;
}

double measure_rate(Stream& stream, const Secret& secret, const std::string& nonce,
                    double latency_s, double seconds) {
  const std::vector<char> bytes(std::size_t{1} << 18);
  std::size_t sent = 0;
  const Clock::time_point begin = Clock::now();
  const double soonest = std::max(kSoonest, kRoundTrips * 2 * latency_s);
  const auto is_enough = [&] {
    const double gone = seconds_between(begin, Clock::now());
    return gone >= seconds || (sent >= kPlenty && gone >= soonest);
  };
  while (!is_enough()) {
    if (!stream.write(bytes.data(), bytes.size())) return 0;
    sent += bytes.size();
  }
  stream.end_writing();
  const std::string number = std::to_string(sent);
  if (stream.read_line() != number + " " + secret.prove("counts", {nonce, number})) return 0;
  return static_cast<double>(sent) / seconds_between(begin, Clock::now());
}

}  // namespace

Reached dial(const Secret& secret, const Address& to, const Address* source) {
  Reached reached;
  Connected connected = connect(to, source, kToConnect);
  reached.seconds = connected.seconds;
  if (!connected.stream) {
    reached.why = transport::tcp::describe_errno(connected.error);
    return reached;
  }
  reached.local = connected.stream->socket().local().host();
  reached.why = introduce(*connected.stream, secret, kHello).why;
  reached.good = reached.why.empty();
  return reached;
}

Timed time_link(const Secret& secret, const Address& to, const Address* source, double seconds) {
  Timed timed;
  Connected echo = connect(to, source, kToConnect);
  if (!echo.stream || !introduce(*echo.stream, secret, kEcho).why.empty()) return timed;
  timed.latency_s = measure_latency(*echo.stream);
  Connected count = connect(to, source, kToConnect);
  if (!count.stream) return timed;
  const Introduced introduced = introduce(*count.stream, secret, kCount);
  if (!introduced.why.empty()) return timed;
  timed.bytes_per_s =
      measure_rate(*count.stream, secret, introduced.nonce, timed.latency_s, seconds);
  timed.good = timed.latency_s > 0 && timed.bytes_per_s > 0;
  return timed;
}

}  // namespace mccl::cli::probe
