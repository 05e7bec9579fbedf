#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>

#include "mccl/error.h"
#include "transport/shm/local_socket.h"
#include "transport/shm_process.h"

namespace mccl::transport::shm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Clock::time_point in(milliseconds time) { return Clock::now() + time; }

std::span<const std::byte> bytes_of(const char* text) {
  return std::as_bytes(std::span(text, std::strlen(text)));
}

struct Ends {
  LocalListener listener{4};
  LocalConnection near = LocalConnection::dial(listener.name(), in(seconds(20)));
  LocalConnection far = listener.accept(in(seconds(20)));
};

bool closes_on_exec(const Descriptor& descriptor) {
  return (::fcntl(descriptor.get(), F_GETFD) & FD_CLOEXEC) != 0;
}

TEST(LocalSocket, PassesBytesWithDescriptors) {
  const Ends ends;
  Process process;
  const Range range = process.arena().allocate(100, 1);
  range.memory()[3] = std::byte{42};
  const std::array<int, 2> passed = {process.arena().descriptor(), 1};
  ends.near.send(bytes_of("hello"), passed);
  std::array<std::byte, 5> got;
  std::vector<Descriptor> came = ends.far.receive(got, in(seconds(20)));
  EXPECT_EQ(0, std::memcmp(got.data(), "hello", 5));
  ASSERT_EQ(came.size(), 2u);
  EXPECT_TRUE(closes_on_exec(came[0]));
  EXPECT_NE(came[0].get(), process.arena().descriptor());
  const PeerArena arena(std::move(came[0]));
  EXPECT_EQ(arena.map(range.place()).memory()[3], std::byte{42});
}

TEST(LocalSocket, BytesComeInAnyPieces) {
  const Ends ends;
  ends.near.send(bytes_of("he"), {});
  ends.near.send(bytes_of("llo, you"), {});
  std::array<std::byte, 5> got;
  EXPECT_TRUE(ends.far.receive(got, in(seconds(20))).empty());
  EXPECT_EQ(0, std::memcmp(got.data(), "hello", 5));
}

TEST(LocalSocket, KnowsItsOwnUser) {
  const Ends ends;
  EXPECT_TRUE(ends.near.same_user());
  EXPECT_TRUE(ends.far.same_user());
}

TEST(LocalSocket, WaitsNoLongerThanItsDeadline) {
  const Ends ends;
  std::array<std::byte, 5> got;
  EXPECT_THROW(ends.far.receive(got, in(milliseconds(20))), TimeoutError);
  ends.near.send(bytes_of("he"), {});
  EXPECT_THROW(ends.far.receive(got, in(milliseconds(20))), TimeoutError) << "half of it";
  EXPECT_THROW(ends.listener.accept(in(milliseconds(20))), TimeoutError);
}

TEST(LocalSocket, NobodyListeningIsAnEmptyConnection) {
  EXPECT_FALSE(LocalConnection::dial("mccl-nobody", in(seconds(20))));
  std::string name;
  {
    const LocalListener listener(1);
    name = listener.name();
  }
  EXPECT_FALSE(LocalConnection::dial(name, in(seconds(20))));
}

TEST(LocalSocket, NamesDiffer) {
  const LocalListener first(1);
  const LocalListener second(1);
  EXPECT_NE(first.name(), second.name());
}

TEST(LocalSocket, APeerThatHangsUpIsAnError) {
  Ends ends;
  ends.near = LocalConnection();
  std::array<std::byte, 5> got;
  EXPECT_THROW(ends.far.receive(got, in(seconds(20))), PeerError);
  EXPECT_THROW(
      for (;;) { ends.far.send(bytes_of("hello"), {}); }, PeerError);
}

TEST(LocalSocket, AFullQueueDoesNotHoldUpForEver) {
  const LocalListener listener(1);
  std::vector<LocalConnection> queue;
  for (;;) {
    LocalConnection next = LocalConnection::dial(listener.name(), in(milliseconds(50)));
    if (!next) break;
    queue.push_back(std::move(next));
    ASSERT_LT(queue.size(), 100u);
  }
  EXPECT_FALSE(queue.empty());
}

TEST(LocalSocket, NoDescriptorsLeftIsAnError) {
  const LocalListener listener(4);
  const LocalConnection near = LocalConnection::dial(listener.name(), in(seconds(20)));
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit limit = before;
  const Descriptor next(::dup(0));
  limit.rlim_cur = static_cast<rlim_t>(next.get());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_THROW(listener.accept(in(seconds(20))), Error);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(listener.accept(in(seconds(20))));
}

}  // namespace
}  // namespace mccl::transport::shm
