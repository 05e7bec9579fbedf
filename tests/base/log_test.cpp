#include "base/log.h"

#include <gtest/gtest.h>

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

std::string contents_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
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
