// Tests the one-line messages about errors in the arguments.
#include "cli/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace mccl::cli {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr OtherName kOthers[] = {{"-np", "-n"}, {"--nproc", "-n"}};

/// Returns the error of a command with a few flags, or "" if there is none.
std::string said(std::vector<const char*> words) {
  CLI::App program("", "mccl");
  CLI::App* command = program.add_subcommand("launch");
  int number = 0;
  double seconds = 0;
  std::string file, kind;
  command->add_option("-n,--number", number)->check(integer_between(1, 4096));
  command->add_option("--seconds", seconds)->check(number_between(0.001, 31536000));
  command->add_option("--file", file);
  command->add_option("--kind", kind)->check(one_of({"ring", "chain"}));
  CLI::Option* quick = command->add_flag("--quick");
  command->add_flag("--slow")->excludes(quick);
  std::vector<const char*> all = {"mccl", "launch"};
  all.insert(all.end(), words.begin(), words.end());
  try {
    program.parse(static_cast<int>(all.size()), all.data());
  } catch (const CLI::ParseError& error) {
    return complaint_of(error, *command, words, kOthers);
  }
  return {};
}

TEST(ParseError, NamesTheFlagAndWhatIsWrong) {
  EXPECT_EQ(said({"-n", "0"}),
            "-n: expected an integer from 1 to 4096; found \"0\" (\"mccl launch --help\" explains "
            "all flags)");
  EXPECT_THAT(said({"--number=x"}), StartsWith("--number: expected an integer from 1 to 4096"));
  EXPECT_THAT(said({"--seconds", "-1"}),
              StartsWith("--seconds: expected a number from 0.001 to 31536000; found \"-1\""));
  EXPECT_THAT(said({"--kind", "rings"}),
              StartsWith("--kind: \"rings\" is not known; did you mean ring? The choices are"));
  EXPECT_THAT(said({"--kind", "star"}),
              HasSubstr("\"star\" is not known; the choices are ring, chain"));
  EXPECT_THAT(said({"--file"}), StartsWith("--file needs a value"));
  EXPECT_THAT(said({"-n"}), StartsWith("-n needs a value"));
  EXPECT_THAT(said({"--slow", "--quick"}), AllOf(HasSubstr("--slow"), HasSubstr("--quick")));
  EXPECT_THAT(said({"foo"}), HasSubstr("foo"));
}

TEST(ParseError, SuggestsTheNearestFlag) {
  EXPECT_THAT(said({"--numbr", "4"}),
              StartsWith("\"--numbr\" is not a flag; did you mean \"--number\"?"));
  EXPECT_THAT(said({"--numbr=4"}), StartsWith("\"--numbr\" is not a flag; did you mean \"--num"));
  EXPECT_THAT(said({"-n", "0", "--quik"}), StartsWith("\"--quik\" is not a flag; did you mean"));
  EXPECT_THAT(said({"-q"}), StartsWith("\"-q\" is not a flag"));
}

TEST(ParseError, SuggestsOurFlagForAFlagOfAnotherLauncher) {
  EXPECT_THAT(said({"-np", "2"}), StartsWith("\"-np\" is not a flag; did you mean \"-n\"?"));
  EXPECT_THAT(said({"--nproc=2"}), StartsWith("\"--nproc\" is not a flag; did you mean \"-n\"?"));
}

TEST(ParseError, GoodArgumentsAreParsed) {
  EXPECT_EQ(said({"-n", "4", "--seconds", "0.5", "--kind", "ring", "--file", "--odd"}), "");
}

TEST(EndOfFlags, IsWhereTheProgramBegins) {
  CLI::App app;
  int number = 0;
  app.add_option("-n,--number", number);
  app.add_flag("--flag");
  const auto end = [&](std::vector<const char*> words) { return end_of_flags(app, words); };
  EXPECT_EQ(end({"-n", "4", "prog", "-n", "5"}), 2U);
  EXPECT_EQ(end({"-n4", "--flag", "prog"}), 2U);
  EXPECT_EQ(end({"--number=4", "prog"}), 1U);
  EXPECT_EQ(end({"--number", "4", "--", "--flag"}), 3U);
  EXPECT_EQ(end({"--flag"}), 1U);
  EXPECT_EQ(end({"-n"}), 1U);
  EXPECT_EQ(end({"-", "x"}), 0U);
}

}  // namespace
}  // namespace mccl::cli
