#include "cli/probe/connections.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/no_signal.h"
#include "base/thread.h"
#include "base/would_block.h"
#include "cli/kit/process.h"
#include "cluster/text.h"

namespace mccl::cli::probe {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLongestLine = 200;
constexpr auto kToConnect = 3s;
constexpr int kRounds = 64;
/// Bytes that suffice to measure a fast link, after kSoonest seconds and kRoundTrips round trips,
/// because TCP starts slowly.
constexpr std::size_t kPlenty = std::size_t{32} << 20;
constexpr double kSoonest = 0.05;
constexpr double kRoundTrips = 50;

/// Purposes of a connection, which the connecting probe chooses.
constexpr const char* kHello = "hello";  ///< Only proofs are exchanged.
constexpr const char* kEcho = "echo";    ///< Each byte is sent back.
constexpr const char* kCount = "count";  ///< All bytes are discarded; their number is sent back.

constexpr const char* kGreeting = "mccl ";

constexpr auto kToProve = 5s;
constexpr auto kForConversation = 5s;
constexpr auto kBetweenLooksAtListeners = 100ms;
/// Few are needed, because each host takes part in one measurement at a time.
constexpr std::size_t kMostConversations = 64;

bool is_purpose(std::string_view text) { return text == kHello || text == kEcho || text == kCount; }

/// Does not block: the line fits into the empty buffer of a new socket.
bool send_line(const Socket& socket, const std::string& line) {
  return ::send(socket.descriptor(), line.data(), line.size(), kNoSignal | MSG_DONTWAIT) ==
         static_cast<ssize_t>(line.size());
}

}  // namespace

/// A connection whose reads and writes block for a bounded time.
class Stream {
 public:
  Stream(Socket socket, std::chrono::milliseconds patience)
      : socket_(std::move(socket)), patience_(patience) {
    const int descriptor = socket_.descriptor();
    ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
    timeval time = {};
    time.tv_sec = static_cast<decltype(time.tv_sec)>(patience.count() / 1000);
    time.tv_usec = static_cast<decltype(time.tv_usec)>(patience.count() % 1000 * 1000);
    for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
      ::setsockopt(descriptor, SOL_SOCKET, option, &time, sizeof time);
  }

  bool write(const void* from, std::size_t bytes) {
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

  /// Returns 0 at the end of the stream, on errors and after the timeout.
  std::size_t read(void* to, std::size_t most) {
    ssize_t n = 0;
    do {
      n = ::recv(socket_.descriptor(), to, most, 0);
    } while (n < 0 && errno == EINTR);
    timed_out_ = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    return n < 0 ? 0 : static_cast<std::size_t>(n);
  }

  /// Empty if no line of at most kLongestLine bytes arrives within `patience_`.
  std::optional<std::string> read_line() {
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

  /// Calls shutdown(2). Also wakes a thread that blocks in read() or write().
  void shut(int how) { ::shutdown(socket_.descriptor(), how); }

  bool timed_out() const { return timed_out_; }

 private:
  Socket socket_;
  std::chrono::milliseconds patience_;
  bool timed_out_ = false;
};

namespace {

/// A connection to another probe. Both sides have proved that they know the key.
struct Introduced {
  std::optional<Stream> stream;
  std::string nonce;  ///< This side's nonce.
  std::string why;    ///< Why the connection or a proof failed; empty on success.
};

/// Connects, from any address if `source` is null, and exchanges proofs of the key.
Introduced introduce(const Secret& secret, const Address& to, const Address* source,
                     const char* purpose) {
  Introduced result{.stream = {}, .nonce = make_nonce(), .why = ""};
  Socket socket = Socket::stream(to.family());
  int error = transport::tcp::start_connect(socket, to, source);
  if (error == EINPROGRESS) {
    pollfd waiting = {socket.descriptor(), POLLOUT, 0};
    error = ::poll(&waiting, 1, kToConnect / 1ms) > 0 ? socket.take_error() : ETIMEDOUT;
  }
  if (error != 0) {
    result.why = describe_errno(error);
    return result;
  }
  transport::tcp::tune_stream(socket);
  Stream& stream = result.stream.emplace(std::move(socket), kToConnect);
  const auto explain = [&](const char* why) {
    result.why = stream.timed_out()
                     ? fmt::format("the host accepts the connection, but sends nothing for {} s",
                                   kToConnect.count())
                     : why;
  };
  const auto theirs = nonce_in(stream.read_line().value_or(""));
  if (!theirs) {
    explain("another program answers at this address");
    return result;
  }
  const std::string line = fmt::format("{} {} {}\n", result.nonce, purpose,
                                       secret.prove("dials", {*theirs, result.nonce, purpose}));
  stream.write(line.data(), line.size());
  const std::string expected = "ok " + secret.prove("answers", {*theirs, result.nonce, purpose});
  if (stream.read_line() != expected) explain("a probe of another run answers at this address");
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
  stream.shut(SHUT_WR);
  const std::string number = std::to_string(sent);
  if (stream.read_line() != number + " " + secret.prove("counts", {nonce, number})) return 0;
  return static_cast<double>(sent) / seconds_between(begin, Clock::now());
}

}  // namespace

std::optional<std::string> nonce_in(std::string_view greeting) {
  if (!greeting.starts_with(kGreeting)) return {};
  return std::string(greeting.substr(std::strlen(kGreeting)));
}

DialerLine parse_dialer_line(const Secret& secret, std::string_view nonce, std::string_view said) {
  using State = DialerLine::State;
  const std::size_t end = said.find('\n');
  if (end == said.npos)
    return {said.size() < kLongestLine ? State::incomplete : State::invalid, {}, {}};
  const auto words = cluster::words_of(said.substr(0, end));
  // A probe sends one line and then waits for the answer, so further bytes are invalid.
  if (end + 1 != said.size() || said.size() > kLongestLine || words.size() != 3 ||
      !is_purpose(words[1]) || !secret.is_proof(words[2], "dials", {nonce, words[0], words[1]}))
    return {State::invalid, {}, {}};
  return {State::proved, std::string(words[0]), std::string(words[1])};
}

Listeners::Listeners(const Secret& secret, std::vector<transport::tcp::Listener> listeners)
    : secret_(secret), listeners_(std::move(listeners)) {
  thread_ = start_thread("mccl-listen", [this] { run(); });
}

Listeners::~Listeners() {
  stopping_ = true;
  thread_.join();
  for (HeldConnection& each : conversations_) each.stream->shut(SHUT_RDWR);
  for (HeldConnection& each : conversations_) each.thread.join();
}

std::vector<std::uint16_t> Listeners::ports() const {
  std::vector<std::uint16_t> ports;
  for (const transport::tcp::Listener& listener : listeners_)
    ports.push_back(listener.address().port());
  return ports;
}

void Listeners::run() {
  while (!stopping_) {
    Watch watch;
    watch.at(Clock::now() + kBetweenLooksAtListeners);
    for (Stranger& stranger : strangers_)
      watch.on(stranger.socket.descriptor(), POLLIN, [&] { stranger.is_over = !hear(stranger); });
    for (const transport::tcp::Listener& listener : listeners_)
      watch.on(listener.descriptor(), POLLIN, [] {});
    watch.wait();
    std::erase_if(strangers_,
                  [](const Stranger& each) { return each.is_over || Clock::now() >= each.limit; });
    for (transport::tcp::Listener& listener : listeners_) accept(listener);
    std::erase_if(conversations_, [](HeldConnection& each) {
      const bool over = each.over;
      if (over) each.thread.join();
      return over;
    });
  }
}

void Listeners::accept(transport::tcp::Listener& listener) {
  transport::tcp::Accepted accepted = listener.accept();
  if (accepted.error != 0 && !strangers_.empty()) strangers_.pop_front();
  if (!accepted.socket) return;
  const std::string address = accepted.from.host();
  const auto is_of_address = [&](const Stranger& each) { return each.address == address; };
  const auto of_address =
      static_cast<std::size_t>(std::ranges::count_if(strangers_, is_of_address));
  if (of_address >= kMostOfAddress) {
    strangers_.erase(std::ranges::find_if(strangers_, is_of_address));
  } else if (strangers_.size() >= kMostUnproved) {
    strangers_.pop_front();
  }
  std::string nonce = make_nonce();
  if (!send_line(accepted.socket, kGreeting + nonce + "\n")) return;
  strangers_.push_back(
      {std::move(accepted.socket), address, std::move(nonce), "", Clock::now() + kToProve});
}

bool Listeners::hear(Stranger& stranger) {
  std::array<char, kLongestLine> bytes;
  const ssize_t n = ::recv(stranger.socket.descriptor(), bytes.data(),
                           bytes.size() - stranger.said.size(), MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  stranger.said.append(bytes.data(), static_cast<std::size_t>(n));
  const auto [state, nonce, purpose] = parse_dialer_line(secret_, stranger.nonce, stranger.said);
  if (state != DialerLine::State::proved) return state == DialerLine::State::incomplete;
  const std::string proof = secret_.prove("answers", {stranger.nonce, nonce, purpose});
  if (send_line(stranger.socket, fmt::format("ok {}\n", proof)) && purpose != kHello)
    converse(stranger, nonce, purpose);
  return false;
}

void Listeners::converse(Stranger& stranger, const std::string& nonce, const std::string& purpose) {
  if (conversations_.size() == kMostConversations) return;
  HeldConnection& conversation = conversations_.emplace_back();
  conversation.stream = std::make_unique<Stream>(std::move(stranger.socket), kForConversation);
  conversation.thread = start_thread("mccl-answer", [this, &conversation, nonce, purpose] {
    hold(*conversation.stream, nonce, purpose);
    conversation.over = true;
  });
}

void Listeners::hold(Stream& stream, const std::string& nonce, const std::string& purpose) const {
  std::vector<char> bytes(std::size_t{1} << 18);
  std::size_t counted = 0;
  while (const std::size_t n = stream.read(bytes.data(), bytes.size())) {
    counted += n;
    if (purpose == kEcho && !stream.write(bytes.data(), n)) return;
  }
  if (purpose != kCount) return;
  const std::string number = std::to_string(counted);
  const std::string line = fmt::format("{} {}\n", number, secret_.prove("counts", {nonce, number}));
  stream.write(line.data(), line.size());
}

std::string dial(const Secret& secret, const Address& to, const Address* source) {
  return introduce(secret, to, source, kHello).why;
}

Timed time_link(const Secret& secret, const Address& to, const Address* source, double seconds) {
  Timed timed;
  Introduced echo = introduce(secret, to, source, kEcho);
  if (!echo.why.empty()) return timed;
  timed.latency_s = measure_latency(*echo.stream);
  Introduced count = introduce(secret, to, source, kCount);
  if (!count.why.empty()) return timed;
  timed.bytes_per_s = measure_rate(*count.stream, secret, count.nonce, timed.latency_s, seconds);
  return timed;
}

}  // namespace mccl::cli::probe
