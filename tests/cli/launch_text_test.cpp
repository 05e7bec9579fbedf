// Tests the parts of `mccl launch` that process text: lines, shell quoting, standard input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cli/kit/dialogue.h"
#include "cli/kit/program.h"
#include "cli/kit/ssh.h"
#include "cli/launch/console.h"
#include "cli/launch/remote_script.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

/// Returns random bytes other than NUL, many of which are special to shells.
std::string some_word(std::mt19937& random) {
  constexpr std::string_view kSpecial = " '\"\\$`!*?~#&|;<>(){}[]\n\t=%^-";
  std::string word(random() % 24, ' ');
  for (char& c : word)
    c = random() % 2 ? kSpecial[random() % kSpecial.size()] : static_cast<char>(1 + random() % 255);
  return word;
}

/// Runs a program through sh that prints each argument followed by NUL. Returns its arguments.
std::vector<std::string> words_through_sh(const std::string& line) {
  std::array<int, 2> in = {};
  std::array<int, 2> out = {};
  EXPECT_EQ(::pipe(in.data()), 0);
  EXPECT_EQ(::pipe(out.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(in[0], 0);
    ::dup2(out[1], 1);
    for (const int end : {in[0], in[1], out[0], out[1]}) ::close(end);
    ::execlp("sh", "sh", static_cast<char*>(nullptr));
    ::_exit(1);
  }
  ::close(in[0]);
  ::close(out[1]);
  const std::string script = "exec printf '%s\\0' " + line + "\n";
  EXPECT_EQ(::write(in[1], script.data(), script.size()), static_cast<ssize_t>(script.size()));
  ::close(in[1]);
  std::vector<std::string> words(1);
  std::array<char, 4096> bytes = {};
  for (ssize_t n = 0; (n = ::read(out[0], bytes.data(), bytes.size())) > 0;) {
    for (const char c : std::string_view(bytes.data(), static_cast<std::size_t>(n))) {
      if (c == '\0') {
        words.emplace_back();
      } else {
        words.back() += c;
      }
    }
  }
  ::close(out[0]);
  ::waitpid(child, nullptr, 0);
  words.pop_back();
  return words;
}

TEST(LaunchWords, AShellReadsBackTheBytes) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> words(1 + random() % 8);
    for (std::string& word : words) word = some_word(random);
    EXPECT_THAT(words_through_sh(command_line(words)), ElementsAreArray(words));
  }
}

TEST(LaunchWords, PlainWordsStayReadable) {
  EXPECT_EQ(shell_word("train.py"), "train.py");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("~"), "'~'");
}

TEST(LaunchLines, WholeCharactersAreNeverCut) {
  const std::string text = "aé€😀z";
  for (std::size_t length = 0; length <= text.size(); ++length) {
    const std::size_t whole = whole_characters(std::string_view(text).substr(0, length));
    EXPECT_TRUE(whole == text.size() || (static_cast<unsigned char>(text[whole]) & 0xc0) != 0x80);
    EXPECT_GT(whole + 4, length);
  }
  EXPECT_EQ(whole_characters("a\x80\x80\x80\x80"), 5U);
  EXPECT_EQ(whole_characters("a\xff"), 2U);
}

/// Returns all lines that Lines yields when `text` arrives in random pieces.
std::vector<std::string> taken_of(std::string_view text, std::mt19937& random, std::string& rest) {
  Lines lines;
  std::vector<std::string> taken;
  while (!text.empty()) {
    const std::span<char> space = lines.space();
    const std::size_t n = std::min({text.size(), space.size(), std::size_t{1} + random() % 40});
    std::memcpy(space.data(), text.data(), n);
    lines.filled(n);
    text.remove_prefix(n);
    const std::string_view whole = lines.take_lines();
    if (!whole.empty()) taken.emplace_back(whole);
  }
  rest = lines.take_rest();
  return taken;
}

TEST(LaunchLines, AreWholeForAnyPieces) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::string text(random() % 600, 'x');
    for (char& c : text) c = random() % 9 ? static_cast<char>('a' + random() % 26) : '\n';
    std::string rest;
    std::string all;
    for (const std::string& piece : taken_of(text, random, rest)) {
      EXPECT_EQ(piece.back(), '\n');
      all += piece;
    }
    EXPECT_EQ(all + rest, text);
    EXPECT_EQ(rest.find('\n'), std::string::npos);
  }
}

TEST(LaunchLines, BoundsTheMemoryOfAnEndlessLine) {
  Lines lines;
  std::size_t taken = 0;
  for (std::size_t given = 0; given < 4 * Lines::kLongest;) {
    const std::span<char> space = lines.space();
    std::fill(space.begin(), space.end(), 'x');
    lines.filled(space.size());
    given += space.size();
    taken += lines.take_lines().size();
    EXPECT_LT(given - taken, Lines::kLongest + space.size());
  }
  EXPECT_GT(taken, 2 * Lines::kLongest);
}

TEST(LaunchLines, EachGetsThePrefix) {
  std::string text;
  append_with_prefix(text, "[1] ", "a\n\nb");
  EXPECT_EQ(text, "[1] a\n[1] \n[1] b");
}

/// Returns what the filter leaves of `text` when it arrives in random pieces.
std::string filtered(RankWords& words, std::string_view text, std::mt19937& random) {
  std::string left;
  std::array<char, 4096> space = {};
  while (!text.empty()) {
    const std::size_t held = words.put_held(space);
    const std::size_t n = std::min<std::size_t>(text.size(), 1 + random() % 40);
    std::memcpy(space.data() + held, text.data(), n);
    text.remove_prefix(n);
    left.append(space.data(), words.filter(std::span(space).first(held + n)));
  }
  return left + words.rest();
}

TEST(LaunchRankWords, RemovesTheWordsOfTheLauncher) {
  std::mt19937 random(23);
  const std::string token = "mccl-0123";
  for (int round = 0; round < 2000; ++round) {
    const std::string noise(random() % 30, 'n');
    std::string own(random() % 200, ' ');
    for (char& c : own) c = "mcl-0123 begixt\n\r"[random() % 17];
    if (own.find(token) != own.npos) continue;
    const std::string end = random() % 2 ? exit_word(token, "143") : token + " exit 143\r\n";
    RankWords words(token, true);
    EXPECT_EQ(filtered(words, noise + begin_word(token) + own + end + "late", random),
              own + "late");
    EXPECT_EQ(words.status(), 143);
  }
}

TEST(LaunchRankWords, PassesOnOtherOutput) {
  std::mt19937 random(29);
  for (const std::string text : {"t", "t exit", "t exit x\n", "t begins\n", "tt exit 1 or 2\n",
                                 "t exit 1234567890123456789012345\n", "t exit 00000000000001\n"}) {
    RankWords words("t", false);
    EXPECT_EQ(filtered(words, text, random), text);
    EXPECT_FALSE(words.status());
  }
  RankWords never("token", true);
  EXPECT_EQ(filtered(never, "sh: rank.0: not found\n", random), "sh: rank.0: not found\n");
}

TEST(LaunchLogins, LimitsLoginsInProgressPerMachine) {
  Logins logins;
  for (std::size_t i = 0; i < Logins::kMost; ++i)
    EXPECT_TRUE(logins.begin({"jump", std::to_string(i)}));
  EXPECT_FALSE(logins.begin({"a", "jump"}));
  for (std::size_t i = 0; i < Logins::kMost; ++i) EXPECT_TRUE(logins.begin({"a"}));
  logins.end({"jump", "0"});
  EXPECT_FALSE(logins.begin({"a", "jump"}));
  EXPECT_TRUE(logins.begin({"b", "jump"}));
}

TEST(LaunchLogins, CountAtJumpHostsToo) {
  EXPECT_THAT(machines_of_login("user me\nhostname 10.0.0.1\nport 22\nproxyjump none\n"),
              ElementsAre("10.0.0.1 22"));
  EXPECT_THAT(machines_of_login("hostname a\nport 22\nproxyjump me@x,y:2222\n"),
              ElementsAre("a 22", "me@x", "y:2222"));
  EXPECT_THAT(machines_of_login("hostname a\nport 22\nproxycommand ssh -W %h:%p x\n"),
              ElementsAre("a 22", "ssh -W %h:%p x"));
  EXPECT_THAT(machines_of_login("no settings"), ElementsAre());
}

TEST(LaunchWords, AreSplitAsAShellSplitsThem) {
  EXPECT_THAT(split_words("", "--mca btl_tcp_if_include lo"),
              ElementsAre("--mca", "btl_tcp_if_include", "lo"));
  EXPECT_THAT(split_words("", R"( a\ b 'c "d' "e \"f \g" '' )"),
              ElementsAre("a b", "c \"d", "e \"f \\g", ""));
  EXPECT_THAT(split_words("", ""), ElementsAre());
  EXPECT_THROW(split_words("--mpi-arg", "it's"), InvalidArgument);
}

TEST(LaunchWords, WhatWasQuotedIsReadBack) {
  std::mt19937 random(17);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> words(random() % 5);
    for (std::string& word : words) word = some_word(random);
    EXPECT_EQ(split_words("", command_line(words)), words);
  }
}

TEST(LaunchInput, EveryReaderGetsAllBytesAtItsOwnPace) {
  std::mt19937 random(5);
  Input input(3);
  std::string given;
  std::array<std::string, 3> had;
  for (int round = 0; round < 5000; ++round) {
    if (input.wants_more() && random() % 2) {
      const std::string piece(random() % 50, static_cast<char>('a' + random() % 26));
      input.add(piece);
      given += piece;
    }
    const std::size_t reader = random() % 3;
    const std::string_view bytes = input.pending(reader);
    const std::size_t n = bytes.empty() ? 0 : 1 + random() % bytes.size();
    had[reader] += bytes.substr(0, n);
    input.taken(reader, n);
    EXPECT_EQ(had[reader], given.substr(0, had[reader].size()));
  }
  input.end();
  for (std::size_t reader = 0; reader < 3; ++reader) {
    while (!input.pending(reader).empty()) {
      had[reader] += input.pending(reader);
      input.taken(reader, input.pending(reader).size());
    }
    EXPECT_EQ(had[reader], given);
    EXPECT_TRUE(input.exhausted(reader));
  }
}

TEST(LaunchInput, BuffersABoundedNumberOfBytesForASlowReaderAndNoneForOneThatLeft) {
  Input input(2);
  const std::string piece(1 << 20, 'x');
  std::size_t given = 0;
  for (; input.wants_more() && given < 1000; ++given) {
    input.add(piece);
    input.taken(0, piece.size());
  }
  EXPECT_EQ(given, 64U);
  input.leave(1);
  EXPECT_TRUE(input.wants_more());
  input.leave(0);
  EXPECT_FALSE(input.wants_more());
}

}  // namespace
}  // namespace mccl::cli::launch
