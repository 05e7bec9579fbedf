// Tests what a rank logs about how it reaches the others, and jobs that want the same ports.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "support/folder.h"
#include "support/hosts.h"
#include "support/processes.h"
#include "transport/tcp/listener.h"

namespace mccl {
namespace {

using mccl::testing::Processes;
using mccl::testing::run_ranks;
using mccl::testing::test_config;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string said_by_ranks(const std::string& transport, const std::string& level, int ranks = 2) {
  ::testing::internal::CaptureStderr();
  run_ranks(
      ranks, [](Context& context) { context.world()->barrier().wait(); },
      [&](int) {
        Config config = test_config();
        config.transport = transport;
        config.log_level = level;
        return config;
      });
  return ::testing::internal::GetCapturedStderr();
}

/// Rank 0 logs the version and the settings. Each rank logs its host and address, and how it
/// reaches the others.
TEST(Reach, InfoHasAFewLinesForAJob) {
  const std::string said = said_by_ranks("tcp", "INFO");
  EXPECT_THAT(
      said,
      ContainsRegex("rank 0\\] mccl [0-9.]+, 2 ranks; settings: backend=native "
                    "\\(program\\), transport=tcp \\(program\\), log_level=INFO \\(program\\)"));
  EXPECT_THAT(said, Not(HasSubstr("rank 1] mccl ")));
  EXPECT_THAT(said, Not(HasSubstr("MCCL_RDMA_GID")));
  std::istringstream lines(said);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LT(line.size(), 240U) << line;
  EXPECT_LE(count, 8) << said;
  const std::string more = said_by_ranks("tcp", "DEBUG");
  for (const char* rank : {"0", "1"}) {
    EXPECT_THAT(more, HasSubstr(std::string("settings of rank ") + rank + " of 2:"));
    EXPECT_THAT(more, ContainsRegex(std::string("rank ") + rank + "\\] rdma_gid +="));
  }
}

TEST(Reach, InfoHasALineForEachRoute) {
  const std::string shared = said_by_ranks("auto", "INFO");
  EXPECT_THAT(shared, HasSubstr("rank 0] rank 1: shared memory\n"));
  EXPECT_THAT(shared, HasSubstr("rank 1] rank 0: shared memory\n"));
  EXPECT_THAT(shared,
              ContainsRegex("rank 0] this rank runs on [^ ]+ and listens at 127.0.0.1:[0-9]+;"));
  EXPECT_THAT(shared, Not(HasSubstr("connection 1")));
  const std::string tcp = said_by_ranks("tcp", "INFO");
  EXPECT_THAT(tcp, HasSubstr("rank 0] rank 1: tcp, 1 link, lo"));
  EXPECT_THAT(tcp, HasSubstr("rank 1] rank 0: tcp, 1 link, lo"));
  EXPECT_THAT(said_by_ranks("auto", "INFO", 5),
              AllOf(HasSubstr("rank 0] ranks 1 to 4: shared memory\n"),
                    HasSubstr("rank 1] ranks 0, 2 to 4: shared memory\n"),
                    HasSubstr("rank 2] ranks 0, 1, 3, 4: shared memory\n")));
}

/// Costs that were not measured are not logged.
TEST(Reach, InfoLogsOnlyMeasuredFigures) {
  const std::string tcp = said_by_ranks("tcp", "INFO");
  EXPECT_THAT(tcp, ContainsRegex("measured: [0-9.e+-]+ us per link, "));
  EXPECT_THAT(tcp, Not(HasSubstr("until a write")));
  const std::string shared = said_by_ranks("auto", "INFO");
  EXPECT_THAT(shared, ContainsRegex("measured: [0-9.e+-]+ us per link through shared memory, "));
  EXPECT_THAT(shared, HasSubstr("in cache"));
}

/// A group has one link to each peer for collectives and one for messages. Links that were only
/// used for measurements are not counted.
TEST(Reach, TheLinksOfGroupsAreCounted) {
  run_ranks(
      2,
      [](Context& context) {
        const auto links = [&] { return context.metrics()->summary().tcp_links; };
        EXPECT_EQ(links(), 0U);
        context.world()->barrier().wait();
        EXPECT_EQ(links(), 1U);
        std::uint8_t byte = 0;
        const Buffer data{&byte, 1, DType::u8};
        (context.rank() == 0 ? context.world()->send(data, 1, 0)
                             : context.world()->recv(data, 0, 0))
            .wait();
        EXPECT_EQ(links(), 2U);
        const auto other = context.group("other", {0, 1}, std::chrono::seconds(60), {});
        other->barrier().wait();
        EXPECT_EQ(links(), 3U);
      },
      [](int) {
        Config config = test_config();
        config.transport = "tcp";
        return config;
      });
}

TEST(Reach, DebugNumbersConnectionsAndLinks) {
  const std::string said = said_by_ranks("tcp", "DEBUG");
  EXPECT_THAT(said, ContainsRegex("rank 1] connection 1, to rank 0 \\(control\\): tcp "));
  EXPECT_THAT(said, ContainsRegex("rank 0] connection 1, from rank 1 \\(control\\): tcp "));
  EXPECT_THAT(said, ContainsRegex("rank 1] link 1, to rank 0 \\([a-z]+, rail 0, group "));
}

/// The first job holds the ports that a second job would use by default.
TEST(Reach, ASecondJobOfTheHostRunsWithDefaultPorts) {
  using transport::tcp::Address;
  std::vector<transport::tcp::Listener> first_job;
  for (const int port : {29600, 29601}) {
    try {
      first_job.emplace_back(*Address::parse_numeric("127.0.0.1", static_cast<std::uint16_t>(port)),
                             0);
    } catch (const transport::tcp::BindError&) {
      continue;  // another process of this host holds the port already
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
