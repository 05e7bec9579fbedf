// Tests that connections without the key, and faulty clients, do not harm the store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "mccl/error.h"
#include "mccl/metrics.h"
#include "mccl/store.h"
#include "rendezvous/store/memory_store.h"
#include "rendezvous/store/store_client.h"
#include "rendezvous/store/tcp_store.h"
#include "support/processes.h"

namespace mccl::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using transport::tcp::Address;
using transport::tcp::Socket;

constexpr auto kPatience = 20s;
const std::string kJobKey = "the job's key";
constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(MemoryStore, IsFullAtItsLimit) {
  MemoryStore store;
  const std::string value(kMaxValueBytes, 'v');
  int taken = 0;
  try {
    for (; taken < 1000; ++taken) store.set("large " + std::to_string(taken), value);
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("is full"));
  }
  EXPECT_LE(taken * kMaxValueBytes, kMaxTableBytes);
  EXPECT_GE(taken * kMaxValueBytes, kMaxTableBytes - 2 * kMaxValueBytes);
  EXPECT_NO_THROW(store.set("large 0", value)) << "an existing value could not be replaced";
  EXPECT_NO_THROW(store.set("large 0", ""));
  EXPECT_NO_THROW(store.set("another", std::string(kMaxValueBytes - 4096, 'v')));
}

TEST(MemoryStore, ManySmallKeysFillItToo) {
  MemoryStore store;
  std::size_t keys = 0;
  try {
    for (; keys < kMaxTableBytes; ++keys) store.add(std::to_string(keys), 1);
  } catch (const InvalidArgument&) {
    EXPECT_LE(keys, kMaxTableBytes / kEntryBytes);
  }
  EXPECT_GE(keys, std::size_t{4096} * 64) << "as many as a large job may need";
  EXPECT_LT(keys, kMaxTableBytes);
}

struct Served {
  const int port = mccl::testing::free_port();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  const std::shared_ptr<Metrics> metrics = std::make_shared<Metrics>();
  const std::shared_ptr<Store> server =
      make_tcp_store(address, 0, kJobKey, kPatience, {{}, metrics});

  std::shared_ptr<Store> client(int rank) const {
    return make_tcp_store(address, rank, kJobKey, kPatience);
  }
  /// Returns a connection on which a test may send anything; an empty socket if the key is wrong.
  Socket connected(const std::string& key, std::string& trouble) const {
    return connect_to_store(static_cast<std::uint16_t>(port), key, trouble);
  }
  Socket proven() const {
    std::string trouble;
    Socket socket = connected(kJobKey, trouble);
    EXPECT_TRUE(socket) << trouble;
    return socket;
  }
};

TEST(TcpStore, AWrongKeyIsLoggedOnceAndCounted) {
  ::testing::internal::CaptureStderr();
  {
    const Served store;
    for (int i = 0; i < 3; ++i) {
      std::string trouble;
      EXPECT_FALSE(store.connected("guess", trouble));
      EXPECT_THAT(trouble, HasSubstr("MCCL_JOB_KEY"));
    }
    store.client(1)->set("k", "v");
    EXPECT_EQ(store.metrics->summary().refused_connections, 3u);
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_THAT(said, HasSubstr("MCCL_JOB_KEY"));
  EXPECT_THAT(said, HasSubstr("127.0.0.1"));
}

/// Each connection ends at once, and the store counts those that it accepts as refused.
TEST(TcpStore, AdmitsAFloodAtALimitedRate) {
  const Served store;
  const Address to = *Address::parse_numeric("127.0.0.1", static_cast<std::uint16_t>(store.port));
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 8000; ++i) {
    const Socket socket = Socket::stream(AF_INET);
    transport::tcp::reset_when_closed(socket);
    transport::tcp::start_connect(socket, to, nullptr);
  }
  store.client(1)->set("k", "v");
  const std::chrono::duration<double> passed = Clock::now() - begin;
  const auto accepted = static_cast<double>(store.metrics->summary().refused_connections);
  EXPECT_GT(accepted, 0);
  EXPECT_LE(accepted, 4096 + 1000 * passed.count());
}

TEST(TcpStore, ReportsAFullTableToTheClient) {
  const Served store;
  const auto client = store.client(1);
  const std::string value(kMaxValueBytes, 'v');
  std::string refusal;
  for (int i = 0; refusal.empty() && i < 1000; ++i) {
    try {
      client->set("large " + std::to_string(i), value);
    } catch (const InvalidArgument& error) {
      refusal = error.what();
    }
  }
  EXPECT_THAT(refusal, HasSubstr("is full"));
  EXPECT_EQ(client->get("large 0", kPatience), value);
}

TEST(TcpStore, RefusesWritesToTheKeysOfRank0) {
  const Served store;
  const auto client = store.client(1);
  const std::string key = "start 1/" + std::string(kServersOwn) + "key";
  EXPECT_THROW(client->set(key, "mine"), InvalidArgument);
  EXPECT_THROW(client->add(key, 1), InvalidArgument);
  store.server->set(key, "rank 0's");
  EXPECT_THROW(client->set(key, "mine"), InvalidArgument);
  EXPECT_EQ(client->get(key, kPatience), "rank 0's");
}

[[maybe_unused]] std::size_t resident_bytes() {
  std::size_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// True if the other end closes the connection in time.
bool ends(const Socket& socket) {
  char byte = 0;
  return wait_for(socket.descriptor(), POLLIN, Clock::now() + kPatience) &&
         ::recv(socket.descriptor(), &byte, 1, 0) <= 0;
}

/// A store server with the given limits. No rank 0 uses it.
struct Limited {
  explicit Limited(const StoreLimits& limits) {
    std::vector<transport::tcp::Listener> listeners;
    listeners.emplace_back(*Address::parse_numeric("127.0.0.1", 0), 0);
    port = listeners.front().address().port();
    server = serve_store(std::move(listeners), {.job_key = kJobKey}, {{.level = "OFF"}, nullptr},
                         limits);
  }
  Socket client() const {
    std::string trouble;
    return connect_to_store(port, kJobKey, trouble);
  }

  std::uint16_t port = 0;
  std::shared_ptr<Store> server;
};

TEST(StoreServer, HasALimitedNumberOfClients) {
  const Limited store({.clients = 3});
  std::vector<Socket> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(store.client());
  EXPECT_TRUE(ends(store.client())) << "one client too many";
  clients.pop_back();
  // The server notices the end of a client in its next pass.
  for (const Clock::time_point limit = Clock::now() + kPatience; clients.size() < 3;) {
    ASSERT_LT(Clock::now(), limit);
    Socket next = store.client();
    const Bytes request = encode(StoreKind::add, "n", {}, 1);
    (void)::send(next.descriptor(), request.data(), request.size(), MSG_NOSIGNAL);
    Bytes answer(kStoreHeaderBytes);
    wait_for(next.descriptor(), POLLIN, Clock::now() + kPatience);
    if (::recv(next.descriptor(), answer.data(), answer.size(), 0) > 0)
      clients.push_back(std::move(next));
  }
}

TEST(StoreServer, ClosesAClientThatStopsInsideARequest) {
  const Limited store({.transfer = 50ms});
  const Socket slow = store.client();
  const Bytes request = encode(StoreKind::set, "k", "value", 0);
  ASSERT_EQ(::send(slow.descriptor(), request.data(), 5, MSG_NOSIGNAL), 5);
  EXPECT_TRUE(ends(slow));
}

/// Sends one request of the largest size, and counts the bytes sent.
struct Sender {
  Socket socket;
  std::size_t sent = 0;

  /// Returns true if bytes were sent.
  bool push(std::span<const std::byte> request) {
    const std::size_t before = sent;
    while (sent < request.size()) {
      const ssize_t n =
          ::send(socket.descriptor(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) break;
      sent += static_cast<std::size_t>(n);
    }
    return sent > before;
  }
  bool answered() const {
    Bytes answer(kStoreHeaderBytes);
    const ssize_t got = ::recv(socket.descriptor(), answer.data(), answer.size(), 0);
    if (got <= 0) return false;
    EXPECT_EQ(decode_store_header(answer)->kind, StoreKind::ok);
    return true;
  }
};

TEST(TcpStore, PartialRequestsUseBoundedMemory) {
  const Served store;
  const auto other = store.client(2);
  const Bytes request = encode(StoreKind::set, "k", std::string(kMaxValueBytes, 'v'), 0);
  const auto all_but_the_end = std::span(request).first(request.size() - 1);
  std::vector<Sender> senders;
  for (int i = 0; i < 256; ++i) senders.push_back({store.proven()});
  [[maybe_unused]] const std::size_t before = resident_bytes();
  for (bool moved = true; moved;) {
    moved = false;
    for (Sender& sender : senders) moved |= sender.push(all_but_the_end);
    // The server serves its connections in turn. After two answers it has read as many bytes as it
    // accepts.
    EXPECT_GT(other->add("small requests wait for nobody", 1), 0);
    EXPECT_GT(other->add("small requests wait for nobody", 1), 0);
  }
// ThreadSanitizer needs several bytes of memory per byte, so its build skips this check.
#if defined(__linux__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(resident_bytes() - before, 128 * kMiB);
#endif
  // Nothing may be lost: when a request completes, requests that wait for room are read.
  const Clock::time_point limit = Clock::now() + 60s;
  while (!senders.empty()) {
    ASSERT_LT(Clock::now(), limit) << senders.size() << " were not answered";
    std::erase_if(senders, [&](Sender& sender) {
      sender.push(request);
      return sender.answered();
    });
    other->add("n", 1);
  }
}

TEST(TcpStore, UnreadAnswersUseBoundedMemoryAndAreDelivered) {
  const Served store;
  const std::string value(kMaxValueBytes, 'v');
  store.server->set("k", value);
  const Bytes request = encode(StoreKind::get, "k", {}, 60'000);
  std::vector<Socket> readers;
  for (int i = 0; i < 64; ++i) {
    readers.push_back(store.proven());
    ASSERT_EQ(::send(readers.back().descriptor(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
  }
  const auto other = store.client(2);
  EXPECT_EQ(other->add("n", 1), 1);
  for (const Socket& reader : readers) {
    Bytes answer(kStoreHeaderBytes + value.size());
    for (std::size_t got = 0; got < answer.size();) {
      ASSERT_TRUE(wait_for(reader.descriptor(), POLLIN, Clock::now() + kPatience));
      const ssize_t n = ::recv(reader.descriptor(), answer.data() + got, answer.size() - got, 0);
      ASSERT_GT(n, 0);
      got += static_cast<std::size_t>(n);
    }
  }
}

}  // namespace
}  // namespace mccl::rendezvous
