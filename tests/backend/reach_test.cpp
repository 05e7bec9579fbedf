// What a rank says of how it reaches the others, and jobs that ask for the same ports.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <optional>

#include "support/folder.h"
#include "support/hosts.h"
#include "support/processes.h"
#include "transport/tcp/listener.h"

namespace mccl {
namespace {

using mccl::testing::Processes;
using mccl::testing::run_ranks;
using mccl::testing::test_config;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string said_by_ranks(const std::string& transport, const std::string& level) {
  ::testing::internal::CaptureStderr();
  run_ranks(
      2, [](Context& context) { context.world()->barrier().wait(); },
      [&](int) {
        Config config = test_config();
        config.transport = transport;
        config.log_level = level;
        return config;
      });
  return ::testing::internal::GetCapturedStderr();
}

TEST(Reach, InfoHasALineForEachPeer) {
  const std::string shared = said_by_ranks("auto", "INFO");
  EXPECT_THAT(shared, HasSubstr("rank 0] rank 1: shared memory\n"));
  EXPECT_THAT(shared, HasSubstr("rank 1] rank 0: shared memory\n"));
  EXPECT_THAT(shared, ContainsRegex("rank 0] listens at 127.0.0.1:[0-9]+;"));
  EXPECT_THAT(shared, Not(HasSubstr("connection 1")));
  const std::string tcp = said_by_ranks("tcp", "INFO");
  EXPECT_THAT(tcp, HasSubstr("rank 0] rank 1: tcp, 1 link, lo"));
  EXPECT_THAT(tcp, HasSubstr("rank 1] rank 0: tcp, 1 link, lo"));
}

/// A figure of what there is not would be a guess.
TEST(Reach, InfoHasOnlyFiguresThatWereMeasured) {
  const std::string tcp = said_by_ranks("tcp", "INFO");
  EXPECT_THAT(tcp, ContainsRegex("measured: [0-9.e+-]+ us a link, "));
  EXPECT_THAT(tcp, Not(HasSubstr("a window")));
  const std::string shared = said_by_ranks("auto", "INFO");
  EXPECT_THAT(shared, ContainsRegex("measured: [0-9.e+-]+ us a link through shared memory, "));
  EXPECT_THAT(shared, HasSubstr("in cache"));
}

TEST(Reach, DebugNumbersConnectionsAndLinks) {
  const std::string said = said_by_ranks("tcp", "DEBUG");
  EXPECT_THAT(said, ContainsRegex("rank 1] connection 1, to rank 0 \\(control\\): tcp "));
  EXPECT_THAT(said, ContainsRegex("rank 0] connection 1, from rank 1 \\(control\\): tcp "));
  EXPECT_THAT(said, ContainsRegex("rank 1] link 1, to rank 0 \\([a-z]+, rail 0, group "));
}

/// The ports of the first job are those that a second one would have by default.
TEST(Reach, ASecondJobOfTheHostRunsWithDefaultPorts) {
  using transport::tcp::Address;
  std::vector<transport::tcp::Listener> first_job;
  for (const int port : {29600, 29601}) {
    try {
      first_job.emplace_back(*Address::parse_numeric("127.0.0.1", static_cast<std::uint16_t>(port)),
                             0);
    } catch (const transport::tcp::BindError&) {
      continue;  // another job of this host has it, which does as well
    }
  }
  run_ranks(
      2, [](Context& context) { context.world()->barrier().wait(); },
      [](int) {
        Config config = test_config();
        config.port_base = Config{}.port_base;
        return config;
      });
}

#ifdef __linux__

TEST(ReachOfHosts, InfoNamesTheCable) {
  const mccl::testing::Hosts hosts;
  if (!hosts.ready()) GTEST_SKIP() << "`ip netns` cannot make hosts here (it needs root)";
  const mccl::testing::Folder folder;
  const auto log_of = [&](int rank) { return folder.path() + "/" + std::to_string(rank); };
  Processes job(2,
                [](Context& context, const Processes::Say&) { context.world()->barrier().wait(); },
                {.store_address = "10.77.0.1:29400",
                 .config_of =
                     [](int) {
                       Config config = test_config();
                       config.log_level = "INFO";
                       return config;
                     },
                 .enter =
                     [&](int rank) {
                       hosts.enter(rank);
                       const int file = ::open(log_of(rank).c_str(), O_CREAT | O_WRONLY, 0600);
                       ::dup2(file, STDERR_FILENO);
                     },
                 .at_the_store = {}});
  job.expect_good_end();
  for (const int rank : {0, 1}) {
    std::ifstream file(log_of(rank));
    const std::string said{std::istreambuf_iterator<char>(file), {}};
    EXPECT_THAT(said,
                HasSubstr("rank " + std::to_string(1 - rank) + ": tcp, 1 link, cable MTU 1500"));
    EXPECT_THAT(said, HasSubstr("10.77.0." + std::to_string(rank + 1) + " (cable MTU 1500)"));
  }
}

#endif

}  // namespace
}  // namespace mccl
