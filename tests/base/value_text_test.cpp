#include "base/value_text.h"

#include <gtest/gtest.h>

#include <string>

namespace mccl {
namespace {

TEST(ParseInteger, AcceptsOnlyWholeIntegers) {
  EXPECT_EQ(parse_integer("42"), 42);
  EXPECT_EQ(parse_integer(" -1 \n"), -1);
  for (const char* text : {"", " ", "4x", "0x10", "1.0", "1e3", "--1", "+1", "9223372036854775808"})
    EXPECT_EQ(parse_integer(text), std::nullopt) << text;
}

TEST(ParseNumber, AcceptsFiniteDecimals) {
  EXPECT_EQ(parse_number("0.01"), 0.01);
  EXPECT_EQ(parse_number("1e-3"), 1e-3);
  EXPECT_EQ(parse_number(" 30 "), 30.0);
  for (const char* text :
       {"", "nan", "inf", "-inf", "1e999", "0x1p3", "1,5", "1.5s", "1 2", "e", "."})
    EXPECT_EQ(parse_number(text), std::nullopt) << text;
}

TEST(ParseNumbers, AcceptsOnlyTextOfNumbers) {
  EXPECT_EQ(parse_numbers("1 2.5\t-3e2 \n"), (std::vector<double>{1, 2.5, -300}));
  EXPECT_EQ(parse_numbers(" "), std::vector<double>());
  for (const char* text : {"1 x", "1,2", "nan", "1 inf", "1 2x"})
    EXPECT_EQ(parse_numbers(text), std::nullopt) << text;
}

TEST(ParseBytes, AcceptsEverySpellingOfAUnit) {
  for (const char* text : {"1048576", "1048576B", "1M", "1m", "1MB", "1mb", "1Mb", "1MiB", "1 mib"})
    EXPECT_EQ(parse_bytes(text), 1u << 20) << text;
  for (const char* text : {"64K", "64kB", "64KiB"}) EXPECT_EQ(parse_bytes(text), 64u << 10) << text;
  for (const char* text : {"1G", "1GB", "1GiB"}) EXPECT_EQ(parse_bytes(text), 1u << 30) << text;
  for (const char* text : {"1iB", "1MBB", "1MBs", "1BM", "B"})
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
}

TEST(ParseBytes, UnitsAreOf1024) {
  EXPECT_EQ(parse_bytes("4194304"), 4194304u);
  EXPECT_EQ(parse_bytes("4M"), 4u << 20);
  EXPECT_EQ(parse_bytes("4 MiB"), 4u << 20);
  EXPECT_EQ(parse_bytes("256KiB"), 256u << 10);
  EXPECT_EQ(parse_bytes("1g"), 1u << 30);
  for (const char* text :
       {"", "M", "-1", "4T", "1.5M", "4M4", "18446744073709551616", "17179869184G"})
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
}

TEST(ParseBoolean, AcceptsTheEightWords) {
  for (const char* text : {"1", "true", "YES", "On", " on "}) EXPECT_EQ(parse_boolean(text), true);
  for (const char* text : {"0", "false", "NO", "Off"}) EXPECT_EQ(parse_boolean(text), false);
  for (const char* text : {"", "2", "t", "enable"}) EXPECT_EQ(parse_boolean(text), std::nullopt);
}

TEST(Quoted, EscapesControlCharactersAndCutsLongText) {
  EXPECT_EQ(in_quotes("a\nb"), "\"a\\x0ab\"");
  const std::string shown = in_quotes(std::string(100'000, 'x'));
  EXPECT_LT(shown.size(), 140u);
  EXPECT_TRUE(shown.ends_with("...\""));
}

TEST(Quoted, CutsBetweenCharacters) {
  std::string text = "x";
  while (text.size() < 1000) text += "\xc3\xa9";  // e with an acute accent
  const std::string shown = printable(text);
  EXPECT_EQ(shown.size() % 2, 0u) << shown;  // 1 + 2n bytes of text, and 3 dots
}

}  // namespace
}  // namespace mccl
