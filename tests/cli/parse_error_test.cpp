// What is wrong with the arguments is told in one line, of the flag as it was typed.
#include "cli/parse_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "cli/flag_values.h"

namespace mccl::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// The complaint of a command with a few flags; empty where there is none.
std::string said(std::vector<const char*> words) {
  CLI::App program("", "mccl");
  CLI::App* command = program.add_subcommand("launch");
  std::optional<int> number;
  std::optional<double> seconds;
  std::string file, kind;
  bool quick = false, sure = false;
  command->add_option("-n,--number,--count", number)->check(integer_between(1, 4096));
  command->add_option("--seconds", seconds)->check(number_between(0.001, 31536000));
  command->add_option("--file", file)->option_text("FILE");
  command->add_option("--kind", kind)->check(one_of({"ring", "chain"}));
  CLI::Option* flag = command->add_flag("--quick", quick);
  command->add_flag("--sure", sure)->needs(flag);
  command->add_flag("--slow")->excludes(flag);
  std::vector<const char*> all = {"mccl", "launch"};
  all.insert(all.end(), words.begin(), words.end());
  try {
    program.parse(static_cast<int>(all.size()), all.data());
  } catch (const CLI::ParseError& error) {
    return complaint_of(error, *command, words);
  }
  return {};
}

TEST(ParseError, NamesTheFlagAsItWasTyped) {
  const std::string expected = ": expected an integer from 1 to 4096; found ";
  EXPECT_EQ(said({"-n", "0"}), "-n" + expected + "\"0\"; \"mccl launch --help\" explains all");
  EXPECT_THAT(said({"-np"}), StartsWith("-n" + expected + "\"p\""));
  EXPECT_THAT(said({"--number=x"}), StartsWith("--number" + expected + "\"x\""));
  EXPECT_THAT(said({"--count", "1.5"}), StartsWith("--count" + expected + "\"1.5\""));
}

TEST(ParseError, ShowsNumbersAsPeopleWriteThem) {
  EXPECT_THAT(said({"--seconds", "-1"}),
              StartsWith("--seconds: expected a number from 0.001 to 31536000; found \"-1\""));
}

TEST(ParseError, TellsOfTooFewAndTooManyValues) {
  EXPECT_THAT(said({"--file"}), StartsWith("--file: expected a value (FILE) after it; found none"));
  EXPECT_THAT(said({"-n", "2", "-n", "3"}),
              StartsWith("-n: expected once; found 2 times; leave out all but one"));
}

TEST(ParseError, NamesTheNearestOfAFewWords) {
  EXPECT_THAT(said({"--kind", "rings"}),
              StartsWith("--kind: \"rings\" is not known; did you mean ring? There are"));
  EXPECT_THAT(said({"--kind", "star"}), HasSubstr("\"star\" is not known; there are ring, chain"));
}

TEST(ParseError, TellsWhatGoesTogether) {
  EXPECT_THAT(said({"--sure"}), StartsWith("--sure is for --quick; give --quick too"));
  EXPECT_THAT(said({"--slow", "--quick"}),
              AllOf(HasSubstr(" excludes --"), HasSubstr("; leave one out")));
}

TEST(ParseError, TellsOfWordsThatAreNoFlags) {
  EXPECT_THAT(said({"foo"}), StartsWith("expected flags only; found \"foo\""));
}

TEST(ParseError, GoodArgumentsAreParsed) {
  EXPECT_EQ(said({"-n", "4", "--seconds", "0.5", "--kind", "ring", "--quick"}), "");
}

}  // namespace
}  // namespace mccl::cli
