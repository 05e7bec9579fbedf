// Tests that groups can be made while a process without the key floods the job with thousands of
// connections.
#include <arpa/inet.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "support/processes.h"
#include "transport/tcp/socket.h"

namespace mccl {
namespace {

using testing::free_port;
using testing::Processes;
using transport::tcp::Address;
using transport::tcp::Socket;

constexpr int kGroups = 20;
/// Maximum number of connections that the flood may open before all groups are made. The flood
/// needs two seconds for them; the groups need some hundredths of a second.
constexpr int kMostMeanwhile = 20'000;
/// Sanitizers slow the engine's handling of connections tenfold, so their builds check only the
/// groups.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCountsMeanwhile = false;
#else
constexpr bool kCountsMeanwhile = true;
#endif
/// Number of connections that the flood keeps open at a time, so that every queue holds some.
constexpr std::size_t kOpen = 4096;
/// Connections that the flood opens per millisecond. If they came faster than the listener accepts
/// them, the system would also drop packets of peers, whose connections would then take a minute.
constexpr int kPerMillisecond = kCountsMeanwhile ? 10 : 2;
/// The flood ends after this many connections, even if the test has not finished.
constexpr int kMostOpened = 500'000;

/// The source addresses of a flood: `count` of them, starting with `first`.
struct Sources {
  const char* name;
  const char* first;
  int count;
};

void PrintTo(const Sources& sources, std::ostream* stream) { *stream << sources.name; }

/// Opens connections to a port from each of its addresses in turn, and sends nothing. Closes the
/// oldest when it has more than kOpen.
class Flood {
 public:
  Flood(const Sources& from, int port)
      : to_(*Address::parse_numeric("127.0.0.1", static_cast<std::uint16_t>(port))) {
    in_addr first = {};
    ::inet_pton(AF_INET, from.first, &first);
    for (int i = 0; i < from.count; ++i) {
      sockaddr_in each = {};
      each.sin_family = AF_INET;
      each.sin_addr.s_addr = htonl(ntohl(first.s_addr) + static_cast<std::uint32_t>(i));
      from_.push_back(*Address::from(reinterpret_cast<const sockaddr*>(&each), sizeof each));
    }
    thread_ = std::thread([this] { run(); });
  }
  ~Flood() {
    stop_ = true;
    thread_.join();
  }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

  int opened() const { return opened_; }

 private:
  void run() {
    std::deque<Socket> open;
    const auto begin = std::chrono::steady_clock::now();
    while (!stop_ && opened_ < kMostOpened) {
      try {
        open.push_back(Socket::stream(AF_INET));
        transport::tcp::reset_when_closed(open.back());  // frees the local port at once
        const std::size_t source = static_cast<std::size_t>(opened_++) % from_.size();
        transport::tcp::start_connect(open.back(), to_, &from_[source]);
      } catch (const Error&) {
        open.clear();
      }
      if (open.size() > kOpen) open.pop_front();
      std::this_thread::sleep_until(begin + std::chrono::milliseconds(opened_ / kPerMillisecond));
    }
  }

  std::vector<Address> from_;
  const Address to_;
  std::atomic<bool> stop_{false};
  std::atomic<int> opened_{0};
  std::thread thread_;
};

void make_groups(Context& context, const Processes::Say& say, const std::string& name) {
  for (int i = 0; i < kGroups; ++i) {
    const auto group = context.group(name + std::to_string(i), {0, 1}, std::chrono::seconds(60));
    group->barrier().wait();
  }
  say("made");
}

class AFlood : public ::testing::TestWithParam<Sources> {};

TEST_P(AFlood, KeepsNoNewGroupFromBeingMade) {
  rlimit files = {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const int port = free_port();
  int begin[2];
  ASSERT_EQ(::pipe(begin), 0);
  Processes job(2,
                [&begin](Context& context, const Processes::Say& say) {
                  make_groups(context, say, "before ");
                  char byte = 0;
                  if (::read(begin[0], &byte, 1) != 1) throw Error("the test has ended");
                  make_groups(context, say, "in the flood ");
                },
                {.store_address = {},
                 .config_of =
                     [port](int rank) {
                       Config config = testing::test_config();
                       config.transport = "tcp";
                       config.calibrate = false;
                       config.port_base = rank == 0 ? port : 0;
                       return config;
                     },
                 .enter = {},
                 .at_the_store = {},
                 .store_for = {}});
  for (const int rank : {0, 1}) ASSERT_EQ(job.line(rank), "made");
  const Flood flood(GetParam(), port);
  while (flood.opened() < 2 * static_cast<int>(kOpen))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const int opened_before = flood.opened();
  ASSERT_EQ(::write(begin[1], "01", 2), 2);
  for (const int rank : {0, 1}) ASSERT_EQ(job.line(rank), "made");
  const int opened_meanwhile = flood.opened() - opened_before;
  if (kCountsMeanwhile) {
    EXPECT_LT(opened_meanwhile, kMostMeanwhile);
  }
  RecordProperty("opened_meanwhile", opened_meanwhile);
  job.expect_good_end();
  for (const int end : begin) ::close(end);
}

/// Peers connect from 127.0.0.1. A flood from 200 addresses in turn stays below the listener's
/// limit for each address.
INSTANTIATE_TEST_SUITE_P(From, AFlood,
                         ::testing::Values(Sources{"another_address", "127.0.0.2", 1},
                                           Sources{"the_address_of_a_peer", "127.0.0.1", 1},
                                           Sources{"200_addresses", "127.0.1.1", 200}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mccl
