// Tests which processes a store without a job key accepts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "mccl/error.h"
#include "mccl/metrics.h"
#include "mccl/store.h"
#include "rendezvous/store/store_client.h"
#include "rendezvous/store/tcp_store.h"
#include "support/hosts.h"
#include "support/other_user.h"
#include "support/processes.h"

namespace mccl::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using transport::tcp::Address;

constexpr auto kAccessLimit = 20s;
const std::string kCommand = "export MCCL_JOB_KEY=$(openssl rand -hex 32)";

/// Runs the action in a child process and returns the text that it returns.
std::string in_child(const std::function<std::string()>& action) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::string said;
    try {
      said = action();
    } catch (const std::exception& error) {
      said = error.what();
    }
    (void)!::write(ends[1], said.data(), said.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said(4096, '\0');
  std::size_t length = 0;
  for (ssize_t n = 1; n > 0 && length < said.size(); length += static_cast<std::size_t>(n))
    n = std::max<ssize_t>(0, ::read(ends[0], said.data() + length, said.size() - length));
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  said.resize(length);
  return said;
}

/// Sets a value in the store at `address` as `rank`. Returns "done", or throws.
std::string set_value(const std::string& address, int rank, const Party& access,
                      std::chrono::milliseconds timeout) {
  make_tcp_store_for(access, address, rank, timeout, {})->set("by " + std::to_string(rank), "v");
  return "done";
}

TEST(StoreAccess, AnotherProcessOfTheUserNeedsNoKey) {
  const std::string address = "127.0.0.1:" + std::to_string(mccl::testing::free_port());
  const auto store = make_tcp_store(address, 0, "", kAccessLimit);
  EXPECT_EQ(in_child([&] { return set_value(address, 1, {}, kAccessLimit); }), "done");
  EXPECT_EQ(store->get("by 1", kAccessLimit), "v");
}

TEST(StoreAccess, TwoProcessesThatAreRank0LearnOfEachOther) {
  const std::string address = "127.0.0.1:" + std::to_string(mccl::testing::free_port());
  const auto refusal = [&](const char* key) -> std::string {
    try {
      make_tcp_store(address, 0, key, kAccessLimit);
      return "accepted";
    } catch (const InvalidArgument& error) {
      return error.what();
    }
  };
  ::testing::internal::CaptureStderr();
  {
    const auto first =
        make_tcp_store(address, 0, "key", kAccessLimit, {{.level = "WARN"}, nullptr});
    EXPECT_THAT(refusal("key"), HasSubstr("rank 0 exists already"));
    EXPECT_THAT(refusal("another key"), HasSubstr("another program uses the port"));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("claims to be rank 0, which is this process"));
}

TEST(StoreAccess, AnotherUserOfTheHostNeitherJoinsNorDisturbs) {
  if (!mccl::testing::can_become_another_user())
    GTEST_SKIP() << "no process can become another user";
  const std::string address = "127.0.0.1:" + std::to_string(mccl::testing::free_port());
  const auto metrics = std::make_shared<Metrics>();
  const auto store = make_tcp_store(address, 0, "", kAccessLimit, {{.level = "OFF"}, metrics});
  for (const Keyless keyless : {Keyless::same_user, Keyless::anyone}) {
    const std::string said = in_child([&] {
      if (::setuid(mccl::testing::kOtherUser) != 0)
        return std::string("cannot become another user");
      return set_value(address, 1, {.keyless = keyless}, 300ms);
    });
    EXPECT_THAT(said, HasSubstr("cannot read the key file of that process"));
    EXPECT_THAT(said, HasSubstr(kCommand));
  }
  EXPECT_EQ(in_child([&] { return set_value(address, 1, {}, kAccessLimit); }), "done");
  EXPECT_EQ(store->get("by 1", kAccessLimit), "v");
}

TEST(StoreAccess, AnotherHostIsRefusedAtOnceWithTheCommandThatMakesAKey) {
  // 203.0.113.0/24 is reserved for documentation, so no host has this address.
  try {
    make_tcp_store("203.0.113.7:29500", 1, "", kAccessLimit);
    FAIL() << "a rank without a key dials another host";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1"));
    EXPECT_THAT(error.what(), HasSubstr("belongs to another host"));
    EXPECT_THAT(error.what(), HasSubstr(kCommand));
  }
}

TEST(StoreAccess, AnotherHostThatReadsTheFileIsRefused) {
  const mccl::testing::Hosts hosts;
  if (!hosts.ready()) GTEST_SKIP() << "`ip netns` cannot make hosts here (it needs root)";
  const std::string said = in_child([&] {
    hosts.enter(0);
    const auto store =
        make_tcp_store("10.77.0.1:29400", 0, "", kAccessLimit, {{.level = "OFF"}, nullptr});
    return in_child([&] {
      hosts.enter(1);
      Entrance entrance;
      entrance.name = "at 10.77.0.1:29400";
      entrance.ways = [] {
        return std::vector<Candidate>{{*Address::parse_numeric("10.77.0.1", 29400), {}, {}}};
      };
      reach_store(entrance, 1, {}, 300ms)->set("k", "v");
      return std::string("done");
    });
  });
  // Both hosts share this test's folders, so the visitor can read the key file. It is refused
  // because it runs on another host.
  EXPECT_THAT(said, HasSubstr("could not reach the store"));
}

TEST(StoreAccess, OnlyOpenClientsReachAnOpenServer) {
  const std::string address = "127.0.0.1:" + std::to_string(mccl::testing::free_port());
  const Party anyone = {.keyless = Keyless::anyone};
  const auto store =
      make_tcp_store_for(anyone, address, 0, kAccessLimit, {{.level = "OFF"}, nullptr});
  EXPECT_EQ(in_child([&] { return set_value(address, 1, anyone, kAccessLimit); }), "done");
  EXPECT_THAT(in_child([&] { return set_value(address, 2, {}, 300ms); }),
              HasSubstr("MCCL_REQUIRE_KEY=0"));
}

}  // namespace
}  // namespace mccl::rendezvous
