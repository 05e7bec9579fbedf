#include "base/log.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "expect_refusal.h"
#include "support/folder.h"

namespace mccl {
namespace {

using testing::contents_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename Call>
std::string stderr_of(Call&& call) {
  ::testing::internal::CaptureStderr();
  call();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, LineHasTimeLevelAndRank) {
  const std::string text = stderr_of([] { Log(3, LogLevel::info).info("hello {}", 42); });
  EXPECT_THAT(text, ::testing::MatchesRegex("[0-9]+-[0-9]+-[0-9]+ [0-9]+:[0-9]+:[0-9]+\\.[0-9]+ "
                                            "INFO  \\[mccl rank 3\\] hello 42\n"));
}

TEST(Log, WritesNothingBelowItsLevel) {
  EXPECT_THAT(stderr_of([] { Log(0, LogLevel::warn).info("quiet"); }), IsEmpty());
  EXPECT_THAT(stderr_of([] { Log(0, LogLevel::warn).write(LogLevel::info, "quiet"); }), IsEmpty());
  EXPECT_THAT(stderr_of([] { Log(0, LogLevel::warn).warn("loud"); }), HasSubstr("WARN  "));
  EXPECT_THAT(stderr_of([] { Log(0, LogLevel::off).write(LogLevel::fatal, "quiet"); }), IsEmpty());
  EXPECT_THAT(stderr_of([] { Log(0, LogLevel::off).write(LogLevel::off, "quiet"); }), IsEmpty());
}

TEST(Log, EachLineOfATextGetsItsPrefix) {
  const std::string text =
      stderr_of([] { Log(1, LogLevel::info).write(LogLevel::info, "a\nb\n"); });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_THAT(text, HasSubstr("[mccl rank 1] a\n"));
  EXPECT_THAT(text, HasSubstr("[mccl rank 1] b\n"));
}

TEST(Log, BracesInTheTextAreText) {
  EXPECT_THAT(stderr_of([] { Log(0, LogLevel::info).write(LogLevel::info, "{} %v {0}"); }),
              HasSubstr("] {} %v {0}\n"));
}

TEST(Log, TwoLogsDoNotShareTheirLevel) {
  EXPECT_THAT(stderr_of([] {
                const Log first(0, LogLevel::info);
                const Log second(0, LogLevel::off);
                first.info("kept");
              }),
              HasSubstr("kept"));
}

TEST(Log, OmitsTheRankIfThereIsNone) {
  EXPECT_THAT(stderr_of([] { Log(-1, LogLevel::info).info("x"); }), HasSubstr("[mccl] x"));
}

TEST(Log, LinesInJsonHaveTimeLevelRankGroupAndMessage) {
  const std::string text = stderr_of([] {
    const Log log(3, {.level = "INFO", .format = "json"});
    log.info("it says \"{}\"\nand \xff", 42);
    log.about("pair").warn("late");
  });
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  const auto first = nlohmann::json::parse(line);
  EXPECT_THAT(first["time"].get<std::string>(),
              ::testing::MatchesRegex("[0-9-]+T[0-9:]+\\.[0-9][0-9][0-9]Z"));
  EXPECT_EQ(first["level"], "INFO");
  EXPECT_EQ(first["rank"], 3);
  EXPECT_EQ(first["message"], "it says \"42\"");
  std::getline(lines, line);
  EXPECT_EQ(nlohmann::json::parse(line)["message"], "and \xef\xbf\xbd");
  std::getline(lines, line);
  EXPECT_EQ(nlohmann::json::parse(line)["group"], "pair");
}

TEST(Log, WritesToAFileInsteadOfStandardError) {
  const testing::Folder folder;
  const LogOptions options{.level = "INFO", .file = folder.path() + "/%r.log"};
  EXPECT_THAT(stderr_of([&] {
                Log(3, options).info("one");
                Log(3, options).info("two");
              }),
              IsEmpty());
  EXPECT_THAT(contents_of(folder.path() + "/3.log"),
              ::testing::ContainsRegex("INFO  \\[mccl rank 3\\] one\n.*two\n"));
}

TEST(Log, AFullFileIsRenamedAndFourFilesRemain) {
  const testing::Folder folder;
  const LogOptions options{
      .level = "INFO", .file = folder.path() + "/%r", .file_bytes = std::size_t{4} << 10};
  const Log first(0, options);
  const Log second(0, options);  // the logs of one process share the file
  for (int i = 0; i < 500; ++i) (i % 2 == 0 ? first : second).info("line {}", i);
  for (const char* name : {"/0", "/0.1", "/0.2", "/0.3"})
    EXPECT_LE(std::filesystem::file_size(folder.path() + name), 4096U) << name;
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/0.4"));
  EXPECT_THAT(contents_of(folder.path() + "/0"), HasSubstr("line 499\n"));
}

/// Runs `child` in a child of a fork, and returns the child's process once it has ended.
template <typename Child>
pid_t forked(Child&& child) {
  const pid_t process = ::fork();
  if (process == 0) {
    child();
    ::_exit(0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(process, &status, 0), process);
  EXPECT_EQ(status, 0);
  return process;
}

TEST(Log, AChildOfAForkWritesToAFileOfItsOwn) {
  for (const char* setting : {"/%p-%r", "/%r"}) {
    const testing::Folder folder;
    const LogOptions options{
        .level = "INFO", .file = folder.path() + setting, .file_bytes = std::size_t{4} << 10};
    const Log log(0, options);
    log.info("parent");
    const pid_t child = forked([&] {
      const Log same(0, options);  // the logs of the child share its file
      for (int i = 0; i < 100; ++i) (i % 2 == 0 ? log : same).info("child {}", i);
      Log(1, options).info("rank 1");
    });
    log.info("parent again");
    const bool has_process = std::string(setting).find("%p") != std::string::npos;
    const auto path = [&](pid_t process, int rank) {
      return fmt::format("{}/{}{}", folder.path(), has_process ? fmt::format("{}-", process) : "",
                         rank);
    };
    const std::string of_parent = path(::getpid(), 0);
    const std::string of_child =
        has_process ? path(child, 0) : fmt::format("{}.{}", of_parent, child);
    EXPECT_THAT(contents_of(of_parent), ::testing::MatchesRegex(".*\\] parent\n.*parent again\n"));
    EXPECT_THAT(contents_of(of_child), HasSubstr("child 99\n"));
    EXPECT_THAT(contents_of(of_child), ::testing::Not(HasSubstr("parent")));
    EXPECT_THAT(contents_of(path(child, 1)), HasSubstr("rank 1\n"));
    EXPECT_FALSE(std::filesystem::exists(of_parent + ".1"));
  }
}

TEST(Log, AChildOfAForkThatCannotOpenItsFileDropsItsLines) {
  const testing::Folder folder;
  const Log log(0, {.level = "INFO", .file = folder.path() + "/logs/%r"});
  std::filesystem::remove_all(folder.path() + "/logs");
  std::ofstream(folder.path() + "/logs") << "no folder";
  forked([&] { log.info("dropped"); });
  EXPECT_EQ(contents_of(folder.path() + "/logs"), "no folder");
}

TEST(Log, FallsBackToStandardErrorIfTheFileCannotBeOpened) {
  EXPECT_THAT(
      stderr_of([] { Log(0, {.level = "INFO", .file = "/proc/none/%r.log"}).info("kept"); }),
      ::testing::AllOf(HasSubstr("cannot log to the file /proc/none/0.log"), HasSubstr("kept")));
}

TEST(Log, LinesOfManyThreadsStayWhole) {
  const std::string text = stderr_of([] {
    const Log log(0, LogLevel::info);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([log] {
        for (int i = 0; i < 100; ++i) log.info("begin {} end", i);
      });
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 400);
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_TRUE(text.substr(begin, end - begin).ends_with(" end"));
}

TEST(LogLevelOf, AcceptsEveryNameInAnyCase) {
  EXPECT_EQ(log_level_of("TRACE"), LogLevel::trace);
  EXPECT_EQ(log_level_of("warn"), LogLevel::warn);
  EXPECT_EQ(log_level_of("OFF"), LogLevel::off);
  EXPECT_THAT(test::refusal([] { log_level_of("loud"); }), HasSubstr("\"loud\""));
}

}  // namespace
}  // namespace mccl
