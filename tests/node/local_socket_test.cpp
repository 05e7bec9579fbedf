#include "node/local_socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <exception>
#include <functional>
#include <thread>

#include "mccl/error.h"
#include "support/no_more_files.h"
#include "support/node_process.h"

namespace mccl::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

Clock::time_point in(milliseconds time) { return Clock::now() + time; }

std::span<const std::byte> bytes_of(const char* text) {
  return std::as_bytes(std::span(text, std::strlen(text)));
}

struct Ends {
  LocalListener listener{4};
  LocalConnection near = LocalConnection::dial(listener.name()).first;
  LocalConnection far = listener.accept(in(seconds(20)));
};

bool closes_on_exec(const Descriptor& descriptor) {
  return (::fcntl(descriptor.get(), F_GETFD) & FD_CLOEXEC) != 0;
}

TEST(LocalSocket, PassesBytesWithDescriptors) {
  const Ends ends;
  NodeProcess process;
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

TEST(LocalSocket, HandlesBytesInAnyPieces) {
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

TEST(LocalSocket, ReturnsNoConnectionIfNothingListens) {
  EXPECT_FALSE(LocalConnection::dial("mccl-nobody").first);
  std::string name;
  {
    const LocalListener listener(1);
    name = listener.name();
  }
  const auto [connection, busy] = LocalConnection::dial(name);
  EXPECT_FALSE(connection);
  EXPECT_FALSE(busy);
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

TEST(LocalSocket, AFullQueueDoesNotBlock) {
  const LocalListener listener(1);
  std::vector<LocalConnection> queue;
  for (;;) {
    auto [next, busy] = LocalConnection::dial(listener.name());
    if (!next) {
      EXPECT_TRUE(busy);
      break;
    }
    queue.push_back(std::move(next));
    ASSERT_LT(queue.size(), 100u);
  }
  EXPECT_FALSE(queue.empty());
  while (!queue.empty()) {
    EXPECT_TRUE(listener.accept(in(seconds(20))));
    queue.pop_back();
  }
  EXPECT_TRUE(LocalConnection::dial(listener.name()).first);
}

/// Expects that `action` fails because there are no descriptors left, and names the limit.
void expect_no_more_files(const mccl::testing::NoMoreFiles& full,
                          const std::function<void()>& action) {
  std::exception_ptr thrown;
  try {
    action();
    ADD_FAILURE() << "there was room";
  } catch (const OutOfDescriptors&) {
    thrown = std::current_exception();
  }
  if (!thrown) return;
  // A sanitizer needs to open files to check an object.
  full.suspend();
  try {
    std::rethrow_exception(thrown);
  } catch (const OutOfDescriptors& error) {
    EXPECT_THAT(error.what(), HasSubstr("ulimit -n"));
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(full.limit())));
  }
  full.resume();
}

TEST(LocalSocket, ExhaustedDescriptorsAreAnErrorThatNamesTheLimit) {
  const LocalListener listener(4);
  const LocalConnection near = LocalConnection::dial(listener.name()).first;
  {
    const mccl::testing::NoMoreFiles full;
    expect_no_more_files(full, [&] { listener.accept(in(seconds(20))); });
    expect_no_more_files(full, [] { LocalConnection::dial("mccl-nobody"); });
  }
  EXPECT_TRUE(listener.accept(in(seconds(20))));
}

TEST(LocalSocket, ReceivingTooManyDescriptorsIsAnErrorThatNamesTheLimit) {
  const Ends ends;
  ASSERT_TRUE(ends.near.send(bytes_of("hello"), std::array<int, 2>{0, 1}));
  std::array<std::byte, 5> got;
  const mccl::testing::NoMoreFiles full;
  expect_no_more_files(full, [&] { ends.far.receive(got, in(seconds(20))); });
}

/// The kernel counts the descriptors in flight of a user over all processes, and compares them to
/// the limit of the sending process. It does not limit a privileged user.
TEST(LocalSocket, TooManyDescriptorsInFlightAreNotAnError) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    const Ends ends;
    const rlimit limit = {20, 20};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const std::array<int, 4> passed = {0, 1, 2, 0};
    std::array<std::byte, 5> got;
    int sent = 0;
    while (sent < 100 && ends.near.send(bytes_of("hello"), passed)) ++sent;
    if (sent == 100) ::_exit(3);
    while (sent-- > 0) ends.far.receive(got, in(seconds(20)));
    ::_exit(ends.near.send(bytes_of("hello"), passed) ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "this user cannot be another one";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace mccl::node
