// Tests a job of three ranks that is attacked by processes that do not know its key. The job must
// go on, its results must be right, and the attacked rank's memory and descriptors must stay
// bounded.
#include <dirent.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <vector>

#include "engine/links/frame.h"
#include "rendezvous/connections/handshake.h"
#include "rendezvous/store/incarnation.h"
#include "rendezvous/store/key_agreement.h"
#include "support/processes.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/socket.h"

#ifdef __linux__

namespace mccl::hostile_peer_test {
namespace {

using rendezvous::Bytes;
using rendezvous::Handshake;
using testing::free_port;
using testing::Processes;
using transport::tcp::Address;
using transport::tcp::Socket;

constexpr int kSize = 3;
const std::string kJobKey = "the key of this job";
constexpr int kRounds = 20;
/// Maximum number of connections that a rank authenticates at a time (accepting.cpp), and some for
/// the job itself.
constexpr int kMostDescriptors = 128 + 64;
constexpr std::size_t kMostGrowthMiB = 32;
constexpr auto kLimit = std::chrono::seconds(20);

std::size_t resident_mib() {
  std::size_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return (resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) >> 20;
}

int descriptors() {
  int count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (folder && ::readdir(folder)) ++count;
  if (folder) ::closedir(folder);
  return count - 3;  // ".", ".." and the folder itself
}

/// Makes calls and checks the sums. Then sends two numbers: the most descriptors that were open,
/// and the most MiB of memory.
void work(Context& context, const Processes::Say& say) {
  std::size_t most_memory = 0;
  int most_descriptors = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::int32_t> values(10'000, context.rank() + round);
    const Buffer buffer = {values.data(), values.size(), DType::i32};
    context.world()->all_reduce(buffer, buffer, ReduceKind::sum).wait();
    for (const std::int32_t value : values) {
      if (value != 3 + kSize * round) throw Error("a sum is wrong");
    }
    // A new group makes new connections while strangers connect, too.
    const auto group =
        context.group("group " + std::to_string(round), {0, 1, 2}, std::chrono::seconds(30));
    group->barrier().wait();
    most_memory = std::max(most_memory, resident_mib());
    most_descriptors = std::max(most_descriptors, descriptors());
  }
  say(std::to_string(most_descriptors) + " " + std::to_string(most_memory));
}

/// A job whose ranks work once before the attack, and again at each call of go_on().
class Job {
 public:
  Job() : port_(free_port()) {
    EXPECT_EQ(::pipe(steps_), 0);
    Config config = testing::test_config();
    config.transport = "tcp";
    config.calibrate = false;
    config.log_level = "OFF";
    config.job_key = kJobKey;
    processes_ = std::make_unique<Processes>(
        kSize,
        [this](Context& context, const Processes::Say& say) {
          char byte = 0;
          do work(context, say);
          while (::read(steps_[0], &byte, 1) == 1 && byte == 'w');
        },
        Processes::Options{.store_address = store_address_,
                           .config_of =
                               [this, config](int rank) {
                                 Config own = config;
                                 own.port_base = rank == 0 ? port_ : 0;
                                 return own;
                               },
                           .enter = {},
                           .at_the_store = {},
                           .store_for = {}});
    before_ = figures();
  }
  ~Job() {
    for (const int end : steps_) ::close(end);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int port() const { return port_; }
  /// The secret with which the ranks prove that they have the key.
  std::string secret() const {
    const auto store = make_tcp_store(store_address_, 1, "key", kLimit);
    const auto run = rendezvous::find_run_that_met(*store);
    return std::string(rendezvous::secret_of_run(kJobKey, run.value().name).view());
  }

  /// Lets the ranks work once more, and checks the descriptors and memory that rank 0 reports.
  void go_on(const char* during) {
    SCOPED_TRACE(during);
    const std::string all(kSize, 'w');
    ASSERT_EQ(::write(steps_[1], all.data(), all.size()), kSize);
    const auto [open, memory] = figures();
    EXPECT_LE(open, before_.first + kMostDescriptors);
    EXPECT_LE(memory, before_.second + kMostGrowthMiB);
    std::printf("%s: at most %d descriptors and %zu MiB (before: %d and %zu)\n", during, open,
                memory, before_.first, before_.second);
  }
  void end() {
    const std::string all(kSize, 'e');
    ASSERT_EQ(::write(steps_[1], all.data(), all.size()), kSize);
    processes_->expect_good_end();
  }

 private:
  /// Waits until all ranks have reported. Returns the descriptors and the MiB of rank 0.
  std::pair<int, std::size_t> figures() {
    std::pair<int, std::size_t> of_rank_0;
    for (int rank = 0; rank < kSize; ++rank) {
      std::pair<int, std::size_t> found;
      const std::string line = processes_->line(rank);
      std::istringstream text(line);
      EXPECT_TRUE(text >> found.first >> found.second) << "rank " << rank << ": " << line;
      if (rank == 0) of_rank_0 = found;
    }
    return of_rank_0;
  }

  const int port_;
  const std::string store_address_ = "127.0.0.1:" + std::to_string(free_port());
  int steps_[2] = {-1, -1};
  std::unique_ptr<Processes> processes_;
  std::pair<int, std::size_t> before_;
};

Socket connection(int port, const char* from = "127.0.0.1") {
  const Address to = *Address::parse_numeric("127.0.0.1", static_cast<std::uint16_t>(port));
  const Address source = *Address::parse_numeric(from, 0);
  Socket socket = Socket::stream(AF_INET);
  transport::tcp::reset_when_closed(socket);  // frees the local port at once
  transport::tcp::start_connect(socket, to, &source);
  pollfd entry = {socket.descriptor(), POLLOUT, 0};
  ::poll(&entry, 1, 2000);
  return socket;
}

void send_all(const Socket& socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

/// Returns the bytes that arrive, up to `wanted`, until the connection ends or kLimit has passed.
Bytes receive(const Socket& socket, std::size_t wanted) {
  Bytes got(wanted);
  std::size_t length = 0;
  const auto limit = std::chrono::steady_clock::now() + kLimit;
  while (length < wanted && std::chrono::steady_clock::now() < limit) {
    pollfd entry = {socket.descriptor(), POLLIN, 0};
    if (::poll(&entry, 1, 100) == 0) continue;
    const ssize_t n = ::recv(socket.descriptor(), got.data() + length, wanted - length, 0);
    if (n <= 0) break;
    length += static_cast<std::size_t>(n);
  }
  got.resize(length);
  return got;
}

/// True if the other end closes the connection in time.
bool is_closed(const Socket& socket) {
  for (;;) {
    const Bytes more = receive(socket, 1);
    if (more.empty()) {
      pollfd entry = {socket.descriptor(), POLLIN, 0};
      return ::poll(&entry, 1, 0) > 0;
    }
  }
}

Handshake dialer(const std::string& key, int rank = 1, int peer = 0) {
  return Handshake::dialer({.rank = rank, .size = kSize, .job_key = key, .agreement = ""}, peer,
                           {7, transport::Purpose::collective, 0});
}

Bytes take_output(Handshake& handshake) {
  const Bytes bytes(handshake.output().begin(), handshake.output().end());
  handshake.sent(bytes.size());
  return bytes;
}

void feed(Handshake& handshake, std::span<const std::byte> bytes) {
  while (!bytes.empty() && handshake.wanted() > 0) {
    const std::size_t n = std::min(bytes.size(), handshake.wanted());
    handshake.feed(bytes.first(n));
    bytes = bytes.subspan(n);
  }
}

/// Bytes of the challenge: magic, version, role, nonce and the name of a key file.
constexpr std::size_t kChallenge = 4 + 2 + 1 + 32 + 32;

/// Returns the messages that a member sends in a whole handshake with another acceptor.
std::vector<Bytes> recorded_handshake(const std::string& secret) {
  Handshake member = dialer(secret);
  Handshake acceptor =
      Handshake::acceptor({.rank = 0, .size = kSize, .job_key = secret, .agreement = ""});
  std::vector<Bytes> messages;
  while (!member.output().empty()) {
    messages.push_back(take_output(member));
    feed(acceptor, messages.back());
    feed(member, take_output(acceptor));
  }
  EXPECT_EQ(member.state(), Handshake::State::done);
  return messages;
}

TEST(HostilePeer, NoiseHugeLengthsAndHalfMessagesAreClosed) {
  Job job;
  std::mt19937 random(1);
  std::vector<Socket> closed, open;
  for (int i = 0; i < 40; ++i) {
    closed.push_back(connection(job.port()));
    Bytes noise(1 + random() % 4096);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
    noise.front() = std::byte{0};  // never the first byte of the protocol
    send_all(closed.back(), noise);
  }
  for (int i = 0; i < 40; ++i) {
    // A first message that is cut off at a random byte.
    Handshake half = dialer("guess");
    open.push_back(connection(job.port()));
    const Bytes hello = take_output(half);
    send_all(open.back(), std::span(hello).first(1 + random() % (hello.size() - 1)));
  }
  for (const std::uint32_t length : {0xffffffffU, 0x7fffffffU, 0x80000000U, 1U << 20}) {
    Handshake liar = dialer("guess");
    closed.push_back(connection(job.port()));
    send_all(closed.back(), take_output(liar));
    ASSERT_EQ(receive(closed.back(), kChallenge).size(), kChallenge);
    Bytes proof;
    rendezvous::append(proof, length);  // announces settings of this length
    proof.resize(proof.size() + 32);
    send_all(closed.back(), proof);
  }
  job.go_on("noise, half messages and huge lengths");
  for (const Socket& each : closed) EXPECT_TRUE(is_closed(each));
  job.end();
}

TEST(HostilePeer, ReplayReflectionAndSplicingOfSessionsProveNothing) {
  Job job;
  // Reflection: the rank receives its own challenge and its own later messages.
  Handshake reflected = dialer("guess");
  const Socket mirror = connection(job.port());
  send_all(mirror, take_output(reflected));
  send_all(mirror, receive(mirror, kChallenge));
  // Splicing: each of two sessions receives the answer to the other's challenge. Both are refused.
  Handshake first = dialer("guess"), second = dialer("guess");
  const Socket one = connection(job.port()), other = connection(job.port());
  send_all(one, take_output(first));
  send_all(other, take_output(second));
  feed(first, receive(other, kChallenge));
  feed(second, receive(one, kChallenge));
  send_all(one, take_output(first));
  send_all(other, take_output(second));
  // Replay: the rank receives bytes that a member has sent to another acceptor.
  Bytes replay;
  for (const Bytes& message : recorded_handshake(job.secret())) rendezvous::append(replay, message);
  const Socket again = connection(job.port());
  send_all(again, replay);
  job.go_on("replay, reflection and splicing");
  for (const Socket* each : {&mirror, &one, &other, &again}) EXPECT_TRUE(is_closed(*each));
  job.end();
}

/// The messages of a member's handshake, which a stranger has recorded: in every order, followed by
/// frames as the links of members carry them; twice; and cut off.
TEST(HostilePeer, TruncatedRepeatedAndReorderedMessagesAreClosed) {
  Job job;
  const std::string secret = job.secret();
  const std::vector<Bytes> messages = recorded_handshake(secret);
  ASSERT_EQ(messages.size(), 3U);
  // With the right nonce, the rank accepts this proof, and then refuses the settings.
  Handshake live = dialer(secret);
  const Socket with_nonce = connection(job.port());
  send_all(with_nonce, take_output(live));
  feed(live, receive(with_nonce, kChallenge));
  send_all(with_nonce, take_output(live));
  feed(live, receive(with_nonce, live.wanted()));
  EXPECT_TRUE(live.proven());
  const engine::FrameBytes frame = engine::encode(engine::Frame{});
  std::vector<Bytes> attempts;
  std::vector<std::size_t> order = {0, 1, 2};
  do {
    Bytes all, twice;
    for (const std::size_t each : order) {
      rendezvous::append(all, messages[each]);
      for (int i = 0; i < 2; ++i) rendezvous::append(twice, messages[each]);
      Bytes followed = all;
      for (int i = 0; i < 100; ++i) rendezvous::append(followed, std::span(frame));
      attempts.push_back(std::move(followed));
    }
    attempts.push_back(twice);
  } while (std::ranges::next_permutation(order).found);
  std::vector<Socket> sockets;
  for (const Bytes& attempt : attempts) {
    sockets.push_back(connection(job.port()));
    send_all(sockets.back(), attempt);
    // The same bytes, cut off at a random byte; the end of the connection follows.
    sockets.push_back(connection(job.port()));
    send_all(sockets.back(), std::span(attempt).first(std::rand() % attempt.size()));
    ::shutdown(sockets.back().descriptor(), SHUT_WR);
  }
  job.go_on("truncated, repeated and reordered messages");
  for (const Socket& each : sockets) EXPECT_TRUE(is_closed(each));
  job.end();
}

TEST(HostilePeer, WrongKeysAndRanksLearnNothing) {
  Job job;
  std::vector<Socket> sockets;
  for (const char* key : {"a valid key of another job", "", "the key of this job"}) {
    for (const int rank : {0, 1, 2, 77}) {
      Handshake stranger = Handshake::dialer(
          {.rank = rank, .size = kSize, .job_key = key, .keyless = rendezvous::Keyless::anyone}, 0,
          {});
      sockets.push_back(connection(job.port()));
      send_all(sockets.back(), take_output(stranger));
      feed(stranger, receive(sockets.back(), kChallenge));
      send_all(sockets.back(), take_output(stranger));
      EXPECT_TRUE(receive(sockets.back(), 1).empty()) << "a wrong proof was answered";
    }
  }
  job.go_on("wrong keys and ranks");
  for (const Socket& each : sockets) EXPECT_TRUE(is_closed(each));
  job.end();
}

/// The strangers write one byte after another and never read.
TEST(HostilePeer, SlowWritersAreClosedInTime) {
  Job job;
  constexpr auto kTooLong = std::chrono::seconds(5);
  const auto begin = std::chrono::steady_clock::now();
  Handshake stranger = dialer("guess");
  const Bytes hello = take_output(stranger);
  std::vector<Socket> sockets;
  for (int i = 0; i < 100; ++i) sockets.push_back(connection(job.port()));
  std::size_t written = 0;
  for (; std::chrono::steady_clock::now() < begin + kTooLong; ++written) {
    for (const Socket& each : sockets) send_all(each, std::span(hello).subspan(written % 8, 1));
    if (written % 60 == 30) job.go_on("slow writers");
    ::usleep(50'000);
  }
  for (const Socket& each : sockets) EXPECT_TRUE(is_closed(each));
  job.end();
}

/// Opens `count` connections to the job, up to `most_open` at a time, from 50 addresses in turn. A
/// third of them sends nothing, a third the first message of the handshake, and a third one byte.
void flood(Job& job, int count, std::size_t most_open) {
  Handshake stranger = dialer("guess");
  const Bytes hello = take_output(stranger);
  std::deque<Socket> open;
  for (int i = 0; i < count; ++i) {
    open.push_back(connection(job.port(), ("127.0.2." + std::to_string(1 + i % 50)).c_str()));
    if (i % 3 == 1) send_all(open.back(), hello);
    if (i % 3 == 2) send_all(open.back(), std::span(hello).first(1));
    if (open.size() > most_open) open.pop_front();
    if (i % 1000 == 999) job.go_on((std::to_string(i + 1) + " connections").c_str());
  }
}

void allow_many_files() {
  rlimit files = {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

TEST(HostilePeer, TwoThousandConnectionsDelayNothing) {
  allow_many_files();
  Job job;
  flood(job, 2000, 2000);
  job.end();
}

/// Run only by `make test-long` (tests/python/test_hostile_peer.py).
TEST(HostilePeer, DISABLED_AHundredThousandConnectionsDelayNothing) {
  allow_many_files();
  Job job;
  flood(job, 100'000, 4000);
  job.end();
}

}  // namespace
}  // namespace mccl::hostile_peer_test

#endif
