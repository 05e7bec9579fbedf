// Connections by the thousand from somebody who does not have the key: groups are made all the
// same.
#include <sys/resource.h>

#include <algorithm>
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
/// At least as many of the flood's connections are open at a time, so that they wait in every
/// queue.
constexpr std::size_t kOpen = 4096;

/// Opens connections to a port from one address as fast as it can, says nothing on them, and closes
/// the oldest when it has many.
class Flood {
 public:
  Flood(const std::string& from, int port)
      : from_(*Address::parse_numeric(from, 0)),
        to_(*Address::parse_numeric("127.0.0.1", static_cast<std::uint16_t>(port))),
        thread_([this] { run(); }) {}
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
    while (!stop_) {
      try {
        open.push_back(Socket::stream(AF_INET));
        const linger reset = {1, 0};  // no port of this end stays taken
        ::setsockopt(open.back().descriptor(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        transport::tcp::start_connect(open.back(), to_, &from_);
        ++opened_;
      } catch (const Error&) {
        open.clear();
      }
      if (open.size() > kOpen) open.pop_front();
    }
  }

  const Address from_;
  const Address to_;
  std::atomic<bool> stop_{false};
  std::atomic<int> opened_{0};
  std::thread thread_;
};

void make_groups(Context& context, const Processes::Say& say, const std::string& name) {
  std::vector<double> milliseconds;
  for (int i = 0; i < kGroups; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const auto group = context.group(name + std::to_string(i), {0, 1}, std::chrono::seconds(60));
    group->barrier().wait();
    milliseconds.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  std::nth_element(milliseconds.begin(), milliseconds.begin() + kGroups / 2, milliseconds.end());
  say(std::to_string(milliseconds[kGroups / 2]));
}

class AFlood : public ::testing::TestWithParam<const char*> {};

TEST_P(AFlood, DelaysNewGroupsLittle) {
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
                     [port](int) {
                       Config config = testing::test_config();
                       config.transport = "tcp";
                       config.calibrate = false;
                       config.port_base = port;  // of rank 0
                       return config;
                     },
                 .enter = {},
                 .at_the_store = {},
                 .store_for = {}});
  const std::string before = job.line(0);
  const Flood flood(GetParam(), port);
  while (flood.opened() < 2 * static_cast<int>(kOpen)) std::this_thread::yield();
  ASSERT_EQ(::write(begin[1], "01", 2), 2);
  const std::string during = job.line(0);
  EXPECT_LT(std::stod(during), 200) << "against " << before << " ms before";
  for (const int end : begin) ::close(end);
}

INSTANTIATE_TEST_SUITE_P(From, AFlood, ::testing::Values("127.0.0.2", "127.0.0.1"),
                         [](const auto& info) {
                           return info.index == 0 ? "another_address" : "the_address_of_a_peer";
                         });

}  // namespace
}  // namespace mccl
