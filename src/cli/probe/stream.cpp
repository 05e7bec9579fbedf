#include "cli/probe/stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/no_signal.h"
#include "base/would_block.h"

namespace mccl::cli::probe {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLongestLine = 200;
constexpr auto kToConnect = 3s;
constexpr int kRounds = 64;
/// A fast link has shown its rate after this many bytes, if they took at least kSoonest seconds and
/// kRoundTrips round trips, because TCP starts slowly.
constexpr std::size_t kPlenty = std::size_t{32} << 20;
constexpr double kSoonest = 0.05;
constexpr double kRoundTrips = 50;

/// A connection that was tried. On failure, `error` is the errno.
struct Connected {
  std::optional<Stream> stream;
  int error = 0;
};

/// Uses `source` as its own address unless that is null.
Connected connect(const Address& to, const Address* source) {
  Connected result;
  Socket socket = Socket::stream(to.family());
  result.error = transport::tcp::start_connect(socket, to, source);
  if (result.error == EINPROGRESS) {
    pollfd waiting = {socket.descriptor(), POLLOUT, 0};
    const int ready = ::poll(&waiting, 1, kToConnect / 1ms);
    result.error = ready > 0 ? socket.take_error() : ETIMEDOUT;
  }
  if (result.error != 0) return result;
  transport::tcp::tune_stream(socket);
  result.stream.emplace(std::move(socket), kToConnect);
  return result;
}

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

Stream::Stream(Socket socket, std::chrono::milliseconds patience)
    : socket_(std::move(socket)), patience_(patience) {
  const int descriptor = socket_.descriptor();
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  timeval time = {};
  time.tv_sec = static_cast<decltype(time.tv_sec)>(patience.count() / 1000);
  time.tv_usec = static_cast<decltype(time.tv_usec)>(patience.count() % 1000 * 1000);
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
    ::setsockopt(descriptor, SOL_SOCKET, option, &time, sizeof time);
}

bool Stream::write(const void* from, std::size_t bytes) {
  const char* at = static_cast<const char*>(from);
  const Clock::time_point limit = Clock::now() + patience_;
  while (bytes > 0) {
    const ssize_t n = ::send(socket_.descriptor(), at, bytes, kNoSignal);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && lacks_memory(errno) && Clock::now() < limit) {
      nap_if_memory_is_short(errno);
      continue;
    }
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

std::size_t Stream::read(void* to, std::size_t most) {
  ssize_t n = 0;
  do {
    n = ::recv(socket_.descriptor(), to, most, 0);
  } while (n < 0 && errno == EINTR);
  timed_out_ = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  return n < 0 ? 0 : static_cast<std::size_t>(n);
}

std::optional<std::string> Stream::read_line() {
  const Clock::time_point limit = Clock::now() + patience_;
  std::string line;
  char next = 0;
  while (line.size() < kLongestLine && read(&next, 1) == 1) {
    if (next == '\n') return line;
    line += next;
    // The time limit applies to the whole line, so single bytes do not extend it.
    timed_out_ = Clock::now() >= limit;
    if (timed_out_) return {};
  }
  return {};
}

void Stream::shut() { ::shutdown(socket_.descriptor(), SHUT_RDWR); }

void Stream::end_writing() { ::shutdown(socket_.descriptor(), SHUT_WR); }

std::string dial(const Secret& secret, const Address& to, const Address* source) {
  Connected connected = connect(to, source);
  return connected.stream ? introduce(*connected.stream, secret, kHello).why
                          : transport::tcp::describe_errno(connected.error);
}

Timed time_link(const Secret& secret, const Address& to, const Address* source, double seconds) {
  Timed timed;
  Connected echo = connect(to, source);
  if (!echo.stream || !introduce(*echo.stream, secret, kEcho).why.empty()) return timed;
  timed.latency_s = measure_latency(*echo.stream);
  Connected count = connect(to, source);
  if (!count.stream) return timed;
  const Introduced introduced = introduce(*count.stream, secret, kCount);
  if (!introduced.why.empty()) return timed;
  timed.bytes_per_s =
      measure_rate(*count.stream, secret, introduced.nonce, timed.latency_s, seconds);
  return timed;
}

}  // namespace mccl::cli::probe
