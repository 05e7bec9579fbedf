// Tests jobs without a job key: which of them start, and how strangers can interfere with the
// start.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <vector>

#include "mccl/meeting.h"
#include "support/hosts.h"
#include "support/other_user.h"
#include "support/processes.h"
#include "transport/tcp/socket.h"

namespace mccl {
namespace {

using testing::free_port;
using ::testing::HasSubstr;
using testing::Processes;

Config keyless(const std::string& require_key, double connect_timeout) {
  Config config = testing::test_config();
  config.require_key = require_key;
  config.connect_timeout = connect_timeout;
  config.calibrate = false;
  return config;
}

/// Options of a job whose ranks find each other at address `root`, as without a launcher.
Processes::Options meeting_at(const std::string& root, int size, const Config& config) {
  return {.store_address = {},
          .config_of = [config](int) { return config; },
          .enter = {},
          .at_the_store = {},
          .store_for =
              [=](int rank, const auto&) {
                return rendezvous::join({.rank = rank, .size = size, .root = root}, config).store;
              }};
}

void add_up(Context& context, const Processes::Say& say) {
  std::vector<std::int32_t> ones(1000, 1);
  const Buffer buffer = {ones.data(), ones.size(), DType::i32};
  context.world()->all_reduce(buffer, buffer, ReduceKind::sum).wait();
  say(std::to_string(ones.back()));
}

TEST(Keyless, RanksOfOneUserAndHostStart) {
  Processes job(3, add_up,
                meeting_at("127.0.0.1:" + std::to_string(free_port()), 3, keyless("auto", 30)));
  for (const int rank : {0, 1, 2}) EXPECT_EQ(job.line(rank), "3");
  job.expect_good_end();
}

TEST(Keyless, ARequiredKeyThatIsMissingIsAnErrorOnEveryRank) {
  Processes job(2, add_up,
                meeting_at("127.0.0.1:" + std::to_string(free_port()), 2, keyless("1", 30)));
  for (const int rank : {0, 1}) {
    const std::string said = job.line(rank);
    EXPECT_THAT(said, HasSubstr("MCCL_REQUIRE_KEY is 1"));
    EXPECT_THAT(said, HasSubstr("export MCCL_JOB_KEY=$(openssl rand -hex 32)"));
  }
}

#ifdef __linux__

/// A process of another user that opens `count` connections to the port and begins a handshake on
/// each. The destructor kills the process.
class Stranger {
 public:
  Stranger(int port, int count) {
    int ready[2] = {-1, -1};
    EXPECT_EQ(::pipe(ready), 0);
    process_ = ::fork();
    if (process_ == 0) {
      if (::setuid(mccl::testing::kOtherUser) != 0) ::_exit(1);
      const auto to =
          *transport::tcp::Address::parse_numeric("127.0.0.1", static_cast<std::uint16_t>(port));
      std::vector<transport::tcp::Socket> open;
      for (int i = 0; i < count; ++i) {
        open.push_back(transport::tcp::Socket::stream(AF_INET));
        transport::tcp::start_connect(open.back(), to, nullptr);
        (void)!::send(open.back().descriptor(), "MCCL\x0a\x00\x01", 7, MSG_NOSIGNAL);
      }
      (void)!::write(ready[1], "r", 1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
  }
  ~Stranger() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

 private:
  pid_t process_ = -1;
};

TEST(Keyless, AnotherUserOfTheHostDoesNotKeepAJobFromStarting) {
  if (!mccl::testing::can_become_another_user())
    GTEST_SKIP() << "no process can become another user";
  const int port = free_port();
  int begin[2] = {-1, -1};
  ASSERT_EQ(::pipe(begin), 0);
  Processes::Options options =
      meeting_at("127.0.0.1:" + std::to_string(port), 3, keyless("auto", 30));
  options.at_the_store = [&](int rank, Store&) {
    char byte = 0;
    // Ranks other than 0 join only once the stranger occupies the store.
    if (rank != 0 && ::read(begin[0], &byte, 1) != 1) throw Error("the test has ended");
  };
  Processes job(3, add_up, options);
  transport::tcp::Socket probe;
  const auto to =
      *transport::tcp::Address::parse_numeric("127.0.0.1", static_cast<std::uint16_t>(port));
  for (int error = ECONNREFUSED; error != 0; error = probe.take_error()) {
    probe = transport::tcp::Socket::stream(AF_INET);
    transport::tcp::start_connect(probe, to, nullptr);
    pollfd entry = {probe.descriptor(), POLLOUT, 0};
    ::poll(&entry, 1, -1);
  }
  const Stranger stranger(port, 500);
  ASSERT_EQ(::write(begin[1], "go", 2), 2);
  for (const int rank : {0, 1, 2}) EXPECT_EQ(job.line(rank), "3");
  job.expect_good_end();
  for (const int end : begin) ::close(end);
}

TEST(Keyless, RanksOnSeveralHostsRaiseTheCommandThatMakesAKey) {
  const testing::Hosts hosts;
  if (!hosts.ready()) GTEST_SKIP() << "`ip netns` cannot make hosts here (it needs root)";
  Processes::Options options = meeting_at("10.77.0.1:29400", 2, keyless("auto", 2));
  options.store_address = "10.77.0.1:29401";
  options.enter = [&](int rank) { hosts.enter(rank); };
  Processes job(2, add_up, options);
  for (const int rank : {0, 1})
    EXPECT_THAT(job.line(rank), HasSubstr("export MCCL_JOB_KEY=$(openssl rand -hex 32)"));
}

TEST(Keyless, WithoutARequiredKeyRanksOnSeveralHostsStart) {
  const testing::Hosts hosts;
  if (!hosts.ready()) GTEST_SKIP() << "`ip netns` cannot make hosts here (it needs root)";
  Processes::Options options = meeting_at("10.77.0.1:29400", 2, keyless("0", 30));
  options.store_address = "10.77.0.1:29401";
  options.enter = [&](int rank) { hosts.enter(rank); };
  Processes job(2, add_up, options);
  for (const int rank : {0, 1}) EXPECT_EQ(job.line(rank), "2");
  job.expect_good_end();
}

#endif

}  // namespace
}  // namespace mccl
