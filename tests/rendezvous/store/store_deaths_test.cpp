// Tests what the store reports when a client ends: its rank, and the start of the job that it was
// in.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "mccl/error.h"
#include "mccl/store.h"
#include "rendezvous/store/memory_store.h"
#include "support/processes.h"

namespace mccl::rendezvous {
namespace {

constexpr std::chrono::seconds kPatience{20};
const std::string kJobKey = "the job's own key";
const std::string kStart(kStartLetters, 'a');

TEST(StartIn, NamesTheStartOfAKey) {
  EXPECT_EQ(start_in("mccl/" + kStart + "/places/1"), kStart);
  EXPECT_EQ(start_in("mccl/" + kStart), "");
  EXPECT_EQ(start_in("mccl/arrival/12"), "");
  EXPECT_EQ(start_in("x/" + kStart + "/places/1"), "");
  EXPECT_EQ(start_in(""), "");
}

/// A process that connects to the store as rank 2, calls `act`, and ends without sending `leave`.
class Client {
 public:
  Client(const std::string& address, const std::function<void(Store&)>& act) : process_(::fork()) {
    if (process_ != 0) return;
    try {
      act(*make_tcp_store(address, 2, kJobKey, kPatience));
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  ~Client() { ::waitpid(process_, nullptr, 0); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

 private:
  pid_t process_;
};

TEST(StoreServer, ADeathCountsForTheStartOfItsRank) {
  const std::string address = "127.0.0.1:" + std::to_string(testing::free_port());
  const Client client(address, [](Store& store) {
    store.set("mccl/" + kStart + "/places/2", "here");
    ::raise(SIGKILL);
  });
  const auto store = make_tcp_store(address, 0, kJobKey, kPatience);
  EXPECT_EQ(store->get(kDeath + std::string("1"), kPatience), "2 " + kStart);
}

TEST(StoreServer, ADeathBeforeAnyStartNamesNone) {
  const std::string address = "127.0.0.1:" + std::to_string(testing::free_port());
  const Client client(address, [](Store& store) {
    store.add("mccl/arrivals", 1);
    ::raise(SIGKILL);
  });
  const auto store = make_tcp_store(address, 0, kJobKey, kPatience);
  EXPECT_EQ(store->get(kDeath + std::string("1"), kPatience), "2 ");
}

TEST(StoreServer, AnOrderlyEndIsNotADeath) {
  const std::string address = "127.0.0.1:" + std::to_string(testing::free_port());
  const auto leave = [](Store& store) { store.set("left", ""); };
  const Client client(address, leave);
  const auto store = make_tcp_store(address, 0, kJobKey, kPatience);
  store->get("left", kPatience);
  EXPECT_THROW(store->get(kDeath + std::string("1"), std::chrono::milliseconds(200)), TimeoutError);
}

}  // namespace
}  // namespace mccl::rendezvous
