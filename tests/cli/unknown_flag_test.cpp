// Flags that a command does not know are named, with the nearest one.
#include "cli/unknown_flag.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace mccl::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(UnknownFlag, IsNamedWithTheNearest) {
  CLI::App program;
  CLI::App* command = program.add_subcommand("launch");
  std::string text;
  bool flag = false;
  command->add_option("--hosts", text);
  command->add_option("-n,--number", text);
  command->add_flag("--verbose", flag);
  const auto said = [&](std::vector<const char*> words) { return unknown_flag(*command, words); };

  EXPECT_THAT(said({"--hostz", "a"}),
              AllOf(HasSubstr("\"--hostz\""), HasSubstr("did you mean \"--hosts\"?"),
                    HasSubstr("mccl launch --help")));
  EXPECT_THAT(said({"--verbos"}), HasSubstr("--verbose"));
  EXPECT_THAT(said({"--hostz=a"}), HasSubstr("\"--hostz\""));
  EXPECT_THAT(said({"-q"}), HasSubstr("\"-q\""));
}

TEST(UnknownFlag, OfAnotherLauncherIsToldOurs) {
  CLI::App program;
  CLI::App* command = program.add_subcommand("launch");
  std::string text;
  command->add_option("-n,--number", text);
  constexpr OtherName kOthers[] = {{"-np", "-n"}, {"--nproc", "-n"}};
  const auto said = [&](std::vector<const char*> words) {
    return unknown_flag(*command, words, kOthers);
  };
  EXPECT_THAT(said({"-np", "2"}), HasSubstr("\"-np\" is not a flag; did you mean \"-n\"?"));
  EXPECT_THAT(said({"--nproc=2"}), HasSubstr("\"--nproc\" is not a flag; did you mean \"-n\"?"));
  EXPECT_EQ(said({"-n", "2"}), "");
}

TEST(UnknownFlag, ValuesAndWhatFollowsTwoDashesAreNone) {
  CLI::App command;
  std::string text;
  command.add_option("-n,--number", text);
  const auto said = [&](std::vector<const char*> words) { return unknown_flag(command, words); };
  for (const auto& words : std::vector<std::vector<const char*>>{{"--number", "--odd"},
                                                                 {"--number=--odd"},
                                                                 {"-n", "-F"},
                                                                 {"-n4"},
                                                                 {"--help"},
                                                                 {"-7"},
                                                                 {"x", "--", "--odd"}})
    EXPECT_EQ(said(words), "") << words.front();
}

}  // namespace
}  // namespace mccl::cli
