#include "base/nearest.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>

namespace mccl {
namespace {

TEST(EditDistance, CountsEachKindOfSlipOnce) {
  EXPECT_EQ(edit_distance("chunk", "chunk"), 0u);
  EXPECT_EQ(edit_distance("chunk", "chnk"), 1u);
  EXPECT_EQ(edit_distance("chunk", "chuunk"), 1u);
  EXPECT_EQ(edit_distance("chunk", "chank"), 1u);
  EXPECT_EQ(edit_distance("chunk", "cuhnk"), 1u);
  EXPECT_EQ(edit_distance("chunk", "CHUNK"), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(EditDistance, IsSymmetricAndBoundedForRandomWords) {
  std::mt19937 random(7);
  const auto word = [&] {
    std::string text(random() % 12, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 4);
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::string a = word(), b = word();
    const std::size_t distance = edit_distance(a, b);
    EXPECT_EQ(distance, edit_distance(b, a)) << a << " " << b;
    EXPECT_EQ(distance == 0, a == b);
    EXPECT_LE(distance, std::max(a.size(), b.size()));
    EXPECT_GE(distance + std::min(a.size(), b.size()), std::max(a.size(), b.size()));
  }
}

TEST(NearestOf, PrefersTheClosestThenTheFirst) {
  const std::array<std::string_view, 3> names = {"rank", "root", "port_base"};
  EXPECT_EQ(nearest_of("portbase", names), "port_base");
  EXPECT_EQ(nearest_of("rnk", names), "rank");
  const std::array<std::string_view, 2> alike = {"device", "service"};
  EXPECT_EQ(nearest_of("sevice", alike), "service");
}

TEST(NearestOf, CountsASwapOfLettersOnce) {
  // Unless a swap counts as one edit, "fro" is as far from "for" as from "frog" and "fry".
  const std::array<std::string_view, 3> names = {"frog", "fry", "for"};
  EXPECT_EQ(nearest_of("fro", names), "for");
  EXPECT_EQ(nearest_of("FRO", names), "for");
  const std::array<std::string_view, 2> without = {"fry", "frog"};
  EXPECT_EQ(nearest_of("fro", without), "frog");
}

/// A flag with two neighbouring letters swapped is recognised, even among flags that are similar.
TEST(NearestOf, KnowsEveryFlagWithTwoLettersSwapped) {
  const std::array<std::string_view, 12> flags = {"--host",   "--hosts", "--hostfile", "--over",
                                                  "--output", "--env",   "--backend",  "--dot",
                                                  "--svg",    "--json",  "--user",     "--verbose"};
  for (const std::string_view flag : flags) {
    for (std::size_t i = 2; i + 1 < flag.size(); ++i) {
      std::string typed(flag);
      std::swap(typed[i], typed[i + 1]);
      EXPECT_EQ(nearest_of(typed, flags), flag) << typed;
    }
  }
}

TEST(NearestOf, MatchesAWordOfALongerName) {
  const std::array<std::string_view, 4> names = {"auto", "direct", "binomial_tree", "cable_tree"};
  EXPECT_EQ(nearest_of("tree", names), "binomial_tree");
  EXPECT_EQ(nearest_of("cable", names), "cable_tree");
  EXPECT_EQ(nearest_of("direct_send", names), "direct");
  EXPECT_EQ(nearest_of("ree", names), std::nullopt);
}

/// A word that is near no name was meant as something else, so a suggestion would mislead.
TEST(NearestOf, ReturnsNothingIfNoNameIsNear) {
  const std::array<std::string_view, 3> commands = {"launch", "bench", "plan"};
  EXPECT_EQ(nearest_of("help", commands), std::nullopt);
  const std::array<std::string_view, 3> levels = {"INFO", "WARN", "ERROR"};
  EXPECT_EQ(nearest_of("verbose", levels), std::nullopt);
  EXPECT_EQ(nearest_of("", levels), std::nullopt);
  EXPECT_EQ(nearest_of("ERROR", std::span<const std::string_view>()), std::nullopt);
}

TEST(NearestOf, DoesNotCountDashes) {
  const std::array<std::string_view, 3> flags = {"--grace", "-n", "--repeat-hosts"};
  EXPECT_EQ(nearest_of("--nproc", flags), std::nullopt);
  EXPECT_EQ(nearest_of("-x", flags), std::nullopt);
  EXPECT_EQ(nearest_of("--n", flags), "-n");
  EXPECT_EQ(nearest_of("--repeat", flags), "--repeat-hosts");
}

TEST(NearestOf, AcceptsVeryLongNames) {
  const std::array<std::string_view, 2> names = {"a", "port_base"};
  EXPECT_EQ(nearest_of("port_base" + std::string(10'000'000, 'x'), names), std::nullopt);
}

TEST(ChoicesNear, BeginsWithTheNearest) {
  const std::array<std::string_view, 2> names = {"ring", "chain"};
  EXPECT_EQ(choices_near("rings", names), "did you mean ring? The choices are ring, chain");
  EXPECT_EQ(choices_near("tree", names), "the choices are ring, chain");
}

}  // namespace
}  // namespace mccl
