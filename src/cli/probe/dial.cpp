#include "cli/probe/dial.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "base/value_text.h"
#include "cli/probe/listeners.h"

namespace mccl::cli::probe {
namespace {

using namespace std::chrono_literals;

constexpr auto kToConnect = 3s;
constexpr int kRounds = 64;
/// A fast link has shown its rate when so much has gone, if it took at least this long, and so many
/// round trips: TCP begins slowly.
constexpr std::size_t kPlenty = std::size_t{32} << 20;
constexpr double kSoonest = 0.05;
constexpr double kRoundTrips = 50;

/// Says what the connection is for; true when the other side agrees.
bool introduce(Stream& stream, const std::string& key, const char* purpose) {
  const std::string line = key + " " + purpose + "\n";
  return stream.write(line.data(), line.size()) && stream.read_line() == "ok";
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

double measure_rate(Stream& stream, double latency_s, double seconds) {
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
  const auto counted = stream.read_line();
  if (!counted || parse_integer(*counted) != static_cast<std::int64_t>(sent)) return 0;
  return static_cast<double>(sent) / seconds_between(begin, Clock::now());
}

}  // namespace

Reached dial(const std::string& key, const Address& to, const Address* source) {
  Reached reached;
  Connected connected = connect(to, source, kToConnect);
  reached.seconds = connected.seconds;
  if (!connected.stream) {
    reached.why = transport::tcp::describe_errno(connected.error);
    return reached;
  }
  reached.local = connected.stream->socket().local().host();
  reached.good = introduce(*connected.stream, key, kHello);
  if (!reached.good) reached.why = "something else answers there";
  return reached;
}

Timed time_link(const std::string& key, const Address& to, const Address* source, double seconds) {
  Timed timed;
  Connected echo = connect(to, source, kToConnect);
  if (!echo.stream || !introduce(*echo.stream, key, kEcho)) return timed;
  timed.latency_s = measure_latency(*echo.stream);
  Connected count = connect(to, source, kToConnect);
  if (!count.stream || !introduce(*count.stream, key, kCount)) return timed;
  timed.bytes_per_s = measure_rate(*count.stream, timed.latency_s, seconds);
  timed.good = timed.latency_s > 0 && timed.bytes_per_s > 0;
  return timed;
}

}  // namespace mccl::cli::probe
