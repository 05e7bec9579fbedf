#include "mccl/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <thread>

#include "mccl/error.h"
#include "rendezvous/store/memory_store.h"
#include "rendezvous/store/store_client.h"
#include "rendezvous/store/tcp_store.h"
#include "transport/tcp/listener.h"

namespace mccl::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using transport::tcp::Address;
using transport::tcp::Listener;
using transport::tcp::Socket;

constexpr auto kPatience = 20s;
const std::string kJobKey = "the job's key";

std::uint16_t free_port() {
  return Listener(*Address::parse_numeric("127.0.0.1", 0), 0).address().port();
}

std::string address_with(std::uint16_t port) { return "127.0.0.1:" + std::to_string(port); }

template <typename Failure, typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Failure& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

/// The views of one store that two ranks have.
struct Views {
  std::shared_ptr<Store> first;
  std::shared_ptr<Store> second;
};

Views memory_views() {
  const std::shared_ptr<Store> store = make_memory_store();
  return {store, store};
}

Views tcp_views() {
  const std::string address = address_with(free_port());
  Views views;
  views.first = make_tcp_store(address, 0, kJobKey, kPatience);
  views.second = make_tcp_store(address, 1, kJobKey, kPatience);
  return views;
}

Party access(bool encrypts) {
  return {.job_key = kJobKey,
          .encryption = encrypts ? transport::tcp::Encryption::by_key() : nullptr};
}

Views encrypted_views() {
  const std::string address = address_with(free_port());
  Views views;
  views.first = make_tcp_store_for(access(true), address, 0, kPatience, {});
  views.second = make_tcp_store_for(access(true), address, 1, kPatience, {});
  return views;
}

class EveryStore : public ::testing::TestWithParam<Views (*)()> {
 protected:
  Views views_ = GetParam()();
  Store& first_ = *views_.first;
  Store& second_ = *views_.second;
};

TEST_P(EveryStore, OneClientReadsTheValueOfAnother) {
  first_.set("a", "one");
  EXPECT_EQ(second_.get("a", kPatience), "one");
  second_.set("b", "two");
  EXPECT_EQ(first_.get("b", kPatience), "two");
  second_.set("a", "three");
  EXPECT_EQ(first_.get("a", kPatience), "three");
  EXPECT_EQ(second_.get("a", kPatience), "three");
}

TEST_P(EveryStore, ValuesAreBytes) {
  const std::string value("\0\xff\n=\0", 5);
  second_.set(std::string("k\0ey", 4), value);
  EXPECT_EQ(first_.get(std::string("k\0ey", 4), kPatience), value);
  first_.set("empty", "");
  EXPECT_EQ(second_.get("empty", kPatience), "");
}

TEST_P(EveryStore, GetWaitsForTheKey) {
  auto other_way = std::async(std::launch::async, [&] { return second_.get("late", kPatience); });
  auto this_way = std::async(std::launch::async, [&] { return first_.get("later", kPatience); });
  first_.set("late", "here");
  second_.set("later", "there");
  EXPECT_EQ(other_way.get(), "here");
  EXPECT_EQ(this_way.get(), "there");
}

TEST_P(EveryStore, AWaitingGetBlocksNoOtherClient) {
  auto waiting = std::async(std::launch::async, [&] { return second_.get("x", kPatience); });
  // The waiting view serves other calls meanwhile, and its own set() ends the wait.
  EXPECT_EQ(second_.add("n", 1), 1);
  second_.set("x", "done");
  EXPECT_EQ(waiting.get(), "done");
}

TEST_P(EveryStore, AMissingKeyIsNamed) {
  for (Store* view : {&first_, &second_}) {
    EXPECT_THAT(message_of<TimeoutError>([&] { view->get("nobody/sets/this", 30ms); }),
                HasSubstr("nobody/sets/this"));
    EXPECT_THROW(view->get("nobody/sets/this", 0ms), TimeoutError);
    EXPECT_THROW(view->get("nobody/sets/this", -5ms), TimeoutError);
  }
  // The view still works after a timeout.
  second_.set("k", "v");
  EXPECT_EQ(second_.get("k", kPatience), "v");
}

TEST_P(EveryStore, CountersBeginAtZero) {
  EXPECT_EQ(first_.add("n", 5), 5);
  EXPECT_EQ(second_.add("n", -7), -2);
  EXPECT_EQ(second_.add("n", 0), -2);
  EXPECT_EQ(first_.get("n", kPatience), "-2");
  first_.set("word", "hello");
  EXPECT_THAT(message_of<InvalidArgument>([&] { second_.add("word", 1); }), HasSubstr("word"));
  EXPECT_EQ(second_.add("large", INT64_MAX), INT64_MAX);
  EXPECT_THROW(second_.add("large", 1), InvalidArgument);
  EXPECT_EQ(second_.add("large", -1), INT64_MAX - 1);
}

TEST_P(EveryStore, EightThreadsAddAtOnce) {
  constexpr int kThreads = 8, kTimes = 50;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < kTimes; ++n) (i % 2 == 0 ? first_ : second_).add("n", 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first_.add("n", 0), kThreads * kTimes);
}

TEST_P(EveryStore, LengthsAreBounded) {
  const std::string key(kMaxKeyBytes, 'k');
  const std::string value(kMaxValueBytes, 'v');
  second_.set(key, value);
  EXPECT_EQ(second_.get(key, kPatience), value);
  EXPECT_EQ(first_.get(key, kPatience), value);
  for (Store* view : {&first_, &second_}) {
    EXPECT_THROW(view->set(key + "k", "v"), InvalidArgument);
    EXPECT_THROW(view->set("k", value + "v"), InvalidArgument);
    EXPECT_THROW(view->get(key + "k", 1ms), InvalidArgument);
    EXPECT_THROW(view->add(key + "k", 1), InvalidArgument);
  }
}

std::string name_of_views(const ::testing::TestParamInfo<Views (*)()>& info) {
  const char* const names[] = {"memory", "tcp", "encrypted"};
  return names[info.index];
}

INSTANTIATE_TEST_SUITE_P(Stores, EveryStore,
                         ::testing::Values(&memory_views, &tcp_views, &encrypted_views),
                         name_of_views);

TEST(EncryptedStore, BothSidesMustEncrypt) {
  for (const bool server_encrypts : {true, false}) {
    const std::string address = address_with(free_port());
    const auto server = make_tcp_store_for(access(server_encrypts), address, 0, kPatience, {});
    EXPECT_THAT(message_of<PeerError>([&] {
                  make_tcp_store_for(access(!server_encrypts), address, 1, kPatience, {});
                }),
                HasSubstr(server_encrypts ? "encryption (rank 1 has off, rank 0 has on)"
                                          : "encryption (rank 1 has on, rank 0 has off)"));
  }
}

TEST(TcpStore, ClientsWaitForTheServer) {
  const std::string address = address_with(free_port());
  auto client = std::async(std::launch::async, [&] {
    return make_tcp_store(address, 1, kJobKey, kPatience)->get("k", kPatience);
  });
  const auto server = make_tcp_store(address, 0, kJobKey, kPatience);
  server->set("k", "v");
  EXPECT_EQ(client.get(), "v");
}

TEST(TcpStore, AnAbsentServerIsAnErrorThatNamesTheAddress) {
  const std::string address = address_with(free_port());
  const std::string message =
      message_of<PeerError>([&] { make_tcp_store(address, 3, kJobKey, 60ms); });
  EXPECT_THAT(message, HasSubstr(address));
  EXPECT_THAT(message, HasSubstr("rank 3"));
  EXPECT_THAT(message, HasSubstr("rank 0"));
  EXPECT_THAT(message, HasSubstr("refused"));
}

TEST(TcpStore, RefusesAnotherKey) {
  const std::string address = address_with(free_port());
  const auto server = make_tcp_store(address, 0, kJobKey, kPatience);
  for (const char* key : {"guess", ""}) {
    const std::string said = message_of<PeerError>([&] { make_tcp_store(address, 1, key, 500ms); });
    EXPECT_THAT(said, HasSubstr("that every rank has the same MCCL_JOB_KEY"));
    EXPECT_THAT(said, HasSubstr("no firewall blocks that address"));
  }
  make_tcp_store(address, 1, kJobKey, kPatience)->set("k", "v");
  EXPECT_EQ(server->get("k", kPatience), "v");
}

TEST(TcpStore, AVanishedServerIsAPeerErrorThatNamesIt) {
  const std::string address = address_with(free_port());
  auto server = make_tcp_store(address, 0, kJobKey, kPatience);
  const auto client = make_tcp_store(address, 1, kJobKey, 60ms);
  std::promise<void> asked;
  auto waiting = std::async(std::launch::async, [&] {
    asked.set_value();
    client->get("never", std::chrono::hours(1));
  });
  asked.get_future().wait();
  client->set("k", "v");
  server.reset();
  EXPECT_THAT(message_of<PeerError>([&] { waiting.get(); }), HasSubstr(address));
  EXPECT_THAT(message_of<PeerError>([&] { client->set("k", "w"); }), HasSubstr("rank 0"));
}

TEST(TcpStore, AServerThatEndsBetweenCallsFailsTheNextCallImmediately) {
  const std::string address = address_with(free_port());
  auto server = make_tcp_store(address, 0, kJobKey, kPatience);
  const auto client = make_tcp_store(address, 1, kJobKey, std::chrono::hours(1));
  client->set("k", "v");
  server.reset();
  EXPECT_THAT(message_of<PeerError>([&] { client->add("n", 1); }),
              HasSubstr("lost its connection to the store"));
  auto another = std::async(std::launch::async, [&] { return client->add("n", 1); });
  server = make_tcp_store(address, 0, kJobKey, kPatience);
  EXPECT_EQ(another.get(), 1) << "the client must wait for the next start of rank 0";
}

TEST(TcpStore, ValuesOutliveTheClientThatSetThem) {
  const std::string address = address_with(free_port());
  const auto server = make_tcp_store(address, 0, kJobKey, kPatience);
  make_tcp_store(address, 1, kJobKey, kPatience)->set("k", "v");
  EXPECT_EQ(make_tcp_store(address, 2, kJobKey, kPatience)->get("k", kPatience), "v");
}

TEST(TcpStore, ThePortIsFreeAgainAfterTheEnd) {
  const std::string address = address_with(free_port());
  for (int i = 0; i < 3; ++i) {
    const auto server = make_tcp_store(address, 0, kJobKey, kPatience);
    make_tcp_store(address, 1, kJobKey, kPatience)->set("k", "v");
  }
}

TEST(TcpStore, ATakenPortIsRefused) {
  const Listener taken(*Address::parse_numeric("127.0.0.1", 0), 0);
  const std::string address = taken.address().text();
  const std::string message =
      message_of<InvalidArgument>([&] { make_tcp_store(address, 0, kJobKey, kPatience); });
  EXPECT_THAT(message, HasSubstr(address));
  EXPECT_THAT(message, HasSubstr("another program"));
}

TEST(TcpStore, RefusesInvalidAddresses) {
  for (const char* address : {"", "127.0.0.1", ":1", "127.0.0.1:", "127.0.0.1:x", "::1:80",
                              "127.0.0.1:65536", "127.0.0.1:0", "203.0.113.7:29500"}) {
    EXPECT_THROW(make_tcp_store(address, 0, kJobKey, 50ms), InvalidArgument) << address;
  }
  EXPECT_THROW(make_tcp_store("127.0.0.1:29500", -1, kJobKey, 50ms), InvalidArgument);
}

TEST(TcpStore, AcceptsHostNamesAndIPv6) {
  for (const char* host : {"localhost", "[::1]"}) {
    const std::string address = std::string(host) + ":" + std::to_string(free_port());
    std::shared_ptr<Store> server;
    try {
      server = make_tcp_store(address, 0, kJobKey, kPatience);
    } catch (const InvalidArgument&) {
      if (std::string(host) == "[::1]") continue;  // the host has no IPv6
      throw;
    }
    make_tcp_store(address, 1, kJobKey, kPatience)->set("k", host);
    EXPECT_EQ(server->get("k", kPatience), host);
  }
}

Socket raw_connection(std::uint16_t port) {
  const Address to = *Address::parse_numeric("127.0.0.1", port);
  Socket socket = Socket::stream(AF_INET);
  transport::tcp::start_connect(socket, to, nullptr);
  EXPECT_TRUE(wait_for(socket.descriptor(), POLLOUT, Clock::now() + kPatience));
  return socket;
}

TEST(TcpStore, IgnoresNoise) {
  const std::uint16_t port = free_port();
  const auto server = make_tcp_store(address_with(port), 0, kJobKey, kPatience);
  std::vector<Socket> strangers;
  for (const std::string_view noise :
       {"GET / HTTP/1.1\r\n\r\n", "", "MCCL", "MCCL\x01\x01", "\n"}) {
    strangers.push_back(raw_connection(port));
    ::send(strangers.back().descriptor(), noise.data(), noise.size(), MSG_NOSIGNAL);
  }
  const auto client = make_tcp_store(address_with(port), 1, kJobKey, kPatience);
  client->set("k", "v");
  EXPECT_EQ(server->get("k", kPatience), "v");
  // The store closed the first stranger's connection without an answer.
  char byte = 0;
  ASSERT_TRUE(wait_for(strangers[0].descriptor(), POLLIN, Clock::now() + kPatience));
  EXPECT_LE(::recv(strangers[0].descriptor(), &byte, 1, 0), 0);
}

TEST(TcpStore, APendingWaitEndsWhenTheServerSetsTheKey) {
  const std::uint16_t port = free_port();
  const auto server = make_tcp_store(address_with(port), 0, kJobKey, kPatience);
  std::string trouble;
  const Socket socket = connect_to_store(port, kJobKey, trouble);
  ASSERT_TRUE(socket) << trouble;
  const Bytes request = encode(StoreKind::get, "late", {}, 3'600'000);
  ASSERT_EQ(::send(socket.descriptor(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  // The server serves its connections in turn, so after two more answers it has read the request.
  const auto other = make_tcp_store(address_with(port), 2, kJobKey, kPatience);
  other->add("n", 1);
  other->add("n", 1);
  server->set("late", "here");
  ASSERT_TRUE(wait_for(socket.descriptor(), POLLIN, Clock::now() + kPatience));
  Bytes answer(kStoreHeaderBytes + 4);
  ASSERT_EQ(::recv(socket.descriptor(), answer.data(), answer.size(), 0),
            static_cast<ssize_t>(answer.size()));
  EXPECT_EQ(text_of(std::span(answer).last(4)), "here");
}

TEST(StoreWire, LengthsAreCheckedBeforeAnythingIsAllocated) {
  const auto is_taken = [](std::uint8_t kind, std::uint32_t key, std::uint32_t value) {
    Bytes bytes;
    append(bytes, kind);
    append(bytes, key);
    append(bytes, value);
    append(bytes, std::uint64_t{0});
    return decode_store_header(bytes).has_value();
  };
  EXPECT_TRUE(is_taken(0, kMaxKeyBytes, kMaxValueBytes));
  EXPECT_FALSE(is_taken(0, kMaxKeyBytes + 1, 0));
  EXPECT_FALSE(is_taken(0, 1, kMaxValueBytes + 1));
  EXPECT_FALSE(is_taken(0, 0xffffffff, 0xffffffff));
  EXPECT_TRUE(is_taken(4, 0, kMaxValueBytes));
  EXPECT_FALSE(is_taken(4, 1, 1)) << "an answer has no key";
  EXPECT_FALSE(is_taken(7, 0, 0));
  const auto answer = decode_store_header(encode(StoreKind::ok, {}, {}, -1));
  ASSERT_TRUE(answer && answer->is_answer());
  EXPECT_EQ(answer->number, -1);
}

}  // namespace
}  // namespace mccl::rendezvous
