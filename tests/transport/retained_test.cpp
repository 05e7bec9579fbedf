// Tests which bytes of a stream stay available after they were written.
#include "transport/tcp/retained.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace mccl::transport::tcp {
namespace {

using Bytes = std::vector<std::byte>;

std::byte byte_at(StreamOffset at) { return static_cast<std::byte>(at * 2654435761u >> 13); }

/// Bytes of the stream from `at` on.
Bytes stream_from(StreamOffset at, std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = byte_at(at + i);
  return bytes;
}

void expect_kept(const Retained& retained, StreamOffset from) {
  for (StreamOffset at = from; at < retained.end();) {
    const auto bytes = retained.from(at);
    ASSERT_FALSE(bytes.empty());
    ASSERT_TRUE(std::ranges::equal(bytes, stream_from(at, bytes.size())));
    at += bytes.size();
  }
}

TEST(Retained, KeepsWhatIsNotAcknowledged) {
  Retained retained;
  const Bytes written = stream_from(0, 100'000);
  retained.append(written, {}, written.size());
  EXPECT_EQ(retained.from(99'000).data(), written.data() + 99'000) << "copied too early";
  retained.release([] { return StreamOffset{1000}; });
  EXPECT_EQ(retained.begin(), 99'000u);
  EXPECT_EQ(retained.end(), 100'000u);
  expect_kept(retained, 99'000);
}

TEST(Retained, CopiesSmallWritesWithoutAskingTheSystem) {
  Retained retained;
  for (StreamOffset at = 0; at < 60'000; at += 60) {
    const Bytes written = stream_from(at, 60);
    retained.append(written, {}, written.size());
    retained.release([]() -> StreamOffset {
      ADD_FAILURE();
      return 0;
    });
  }
  expect_kept(retained, 0);
}

/// Random writes in one or two pieces, some of them continued where the last one ended, released at
/// random times with random numbers of unacknowledged bytes.
TEST(Retained, KeepsTheRightBytesAfterAnyWrites) {
  for (unsigned seed = 0; seed < 15; ++seed) {
    std::mt19937 random(seed);
    const auto up_to = [&](std::size_t most) { return random() % (most + 1); };
    Retained retained;
    StreamOffset needed = 0;
    for (int message = 0; message < 40; ++message) {
      const Bytes header = stream_from(retained.end(), up_to(64));
      const Bytes payload =
          stream_from(retained.end() + header.size(), up_to(up_to(3) == 0 ? 200'000 : 3000));
      std::size_t written = 0;
      while (written < header.size() + payload.size()) {
        const auto rest = std::span(header).subspan(std::min(written, header.size()));
        const auto after = std::span(payload).subspan(written - std::min(written, header.size()));
        const std::size_t count = 1 + up_to(rest.size() + after.size() - 1);
        retained.append(rest, after, count);
        written += count;
        if (up_to(20) == 0) expect_kept(retained, std::max(needed, retained.begin()));
      }
      retained.release([&] {
        needed = std::max(needed, retained.end() - up_to(retained.end() - needed));
        return retained.end() - needed;
      });
      ASSERT_LE(retained.begin(), needed) << "seed " << seed;
      expect_kept(retained, needed);
    }
  }
}

}  // namespace
}  // namespace mccl::transport::tcp
