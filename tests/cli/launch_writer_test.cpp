#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>

#include "cli/launch/console.h"

namespace mccl::cli::launch {
namespace {

std::string read_all(const Pipe& pipe, std::size_t bytes) {
  std::string text;
  std::array<char, 4096> piece;
  while (text.size() < bytes) {
    const ssize_t n = read_some(pipe.reader.get(), piece.data(), piece.size());
    if (n <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(n));
  }
  return text;
}

/// Blocks until the writer signals a change.
void wait_for_room(Writer& writer) {
  pollfd entry = {writer.room().descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 60'000), 1);
  writer.room().drain();
}

TEST(LaunchWriter, KeepsTheOrderAndWritesAllBeforeItEnds) {
  const Pipe pipe = make_pipe();
  std::string expected;
  {
    Writer writer;
    for (int i = 0; i < 2000; ++i) {
      const std::string text = std::to_string(i) + "\n";
      writer.write(pipe.writer.get(), text);
      expected += text;
    }
  }
  EXPECT_EQ(read_all(pipe, expected.size()), expected);
}

TEST(LaunchWriter, NeverWaitsForAReaderAndReportsFreeSpace) {
  const Pipe pipe = make_pipe();
  Writer writer;
  std::size_t given = 0;
  for (; !writer.full(); given += 65536) writer.write(pipe.writer.get(), std::string(65536, 'x'));
  EXPECT_EQ(read_all(pipe, given).size(), given);
  while (writer.full()) wait_for_room(writer);
  EXPECT_FALSE(writer.lost_output());
}

TEST(LaunchWriter, NoticesAClosedReader) {
  std::signal(SIGPIPE, SIG_IGN);
  Pipe pipe = make_pipe();
  pipe.reader.close();
  Writer writer;
  writer.write(pipe.writer.get(), "x");
  while (!writer.lost_output()) wait_for_room(writer);
  EXPECT_EQ(writer.lost_output()->error, EPIPE);
  for (int i = 0; i < 1000; ++i) writer.write(pipe.writer.get(), std::string(65536, 'x'));
  EXPECT_FALSE(writer.full());
}

TEST(LaunchWriter, ReportsWhyAndWhereAWriteFailed) {
  const int full = ::open("/dev/full", O_WRONLY);
  if (full < 0) GTEST_SKIP() << "no /dev/full here";
  Writer writer;
  writer.write(full, "x");
  while (!writer.lost_output()) wait_for_room(writer);
  EXPECT_EQ(writer.lost_output()->error, ENOSPC);
  EXPECT_EQ(writer.lost_output()->descriptor, full);
  ::close(full);
}

}  // namespace
}  // namespace mccl::cli::launch
