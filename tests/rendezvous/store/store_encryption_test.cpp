// Tests that MCCL_ENCRYPTION=on in the environment encrypts the stores of make_tcp_store().
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>

#include <array>
#include <atomic>
#include <thread>

#include "mccl/error.h"
#include "mccl/store.h"
#include "rendezvous/store/tcp_store.h"
#include "support/processes.h"
#include "transport/tcp/listener.h"

namespace mccl::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;
using transport::tcp::Address;
using transport::tcp::Encryption;
using transport::tcp::Listener;
using transport::tcp::Socket;

constexpr auto kStoreLimit = 20s;
const std::string kStoreKey = "the key of this store";
const std::string kSecretValue = "a value that nobody else may read";

class EncryptionSetting {
 public:
  explicit EncryptionSetting(const char* value) { ::setenv("MCCL_ENCRYPTION", value, 1); }
  ~EncryptionSetting() { ::unsetenv("MCCL_ENCRYPTION"); }
  EncryptionSetting(const EncryptionSetting&) = delete;
  EncryptionSetting& operator=(const EncryptionSetting&) = delete;
};

std::shared_ptr<Store> store_with(const char* encryption, const std::string& address, int rank,
                                  const std::string& key = kStoreKey) {
  const EncryptionSetting setting(encryption);
  return make_tcp_store(address, rank, key, kStoreLimit);
}

/// A process between a client and the store, which passes on and records all bytes of one
/// connection.
class Eavesdropper {
 public:
  explicit Eavesdropper(const std::string& store)
      : listener_(*Address::parse_numeric("127.0.0.1", 0), 0),
        thread_([this, store] { run(store); }) {}
  ~Eavesdropper() { (void)heard(); }
  Eavesdropper(const Eavesdropper&) = delete;
  Eavesdropper& operator=(const Eavesdropper&) = delete;

  std::string address() const { return listener_.address().text(); }
  /// Ends the connection, and returns the bytes of both directions.
  const std::string& heard() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
    return heard_;
  }

 private:
  void run(const std::string& store) {
    while (!wait_for(listener_.descriptor(), POLLIN, Clock::now() + 10ms)) {
      if (is_over_) return;
    }
    const Socket client = listener_.accept().socket;
    const auto where = transport::tcp::parse_host_port(store);
    const Address server = *Address::parse_numeric(where.host, where.port);
    const Socket onward = Socket::stream(server.family());
    transport::tcp::start_connect(onward, server, nullptr);
    ASSERT_TRUE(wait_for(onward.descriptor(), POLLOUT, Clock::now() + kStoreLimit));
    while (!is_over_) {
      carry(client, onward);
      carry(onward, client);
      (void)wait_for(client.descriptor(), POLLIN, Clock::now() + 1ms);
    }
  }

  void carry(const Socket& from, const Socket& to) {
    std::array<std::byte, 4096> bytes;
    const std::size_t got = from.receive(bytes).bytes;
    if (got == 0) return;
    heard_ += text_of(std::span(bytes).first(got));
    EXPECT_EQ(to.send(std::span(bytes).first(got)).bytes, got);
  }

  Listener listener_;
  std::atomic<bool> is_over_ = false;
  std::string heard_;
  std::thread thread_;
};

/// Returns all bytes between the store and a client that writes kSecretValue and reads it again.
std::string bytes_between(const char* encryption) {
  const std::string address = "127.0.0.1:" + std::to_string(mccl::testing::free_port());
  const auto server = store_with(encryption, address, 0);
  Eavesdropper eavesdropper(address);
  const auto client = store_with(encryption, eavesdropper.address(), 1);
  client->set("k", kSecretValue);
  EXPECT_EQ(client->get("k", kStoreLimit), kSecretValue);
  return eavesdropper.heard();
}

TEST(StoreEncryption, TheEnvironmentEncryptsTheStore) {
  EXPECT_THAT(bytes_between("off"), HasSubstr(kSecretValue));
  const std::string heard = bytes_between("on");
  EXPECT_THAT(heard, HasSubstr("MCCL"));
  EXPECT_THAT(heard, Not(HasSubstr(kSecretValue)));
}

TEST(StoreEncryption, BothSidesRefuseAClientThatDiffers) {
  for (const bool server_encrypts : {true, false}) {
    const std::string address = "127.0.0.1:" + std::to_string(mccl::testing::free_port());
    const std::array<const char*, 2> values = {"off", "on"};
    std::string said;
    ::testing::internal::CaptureStderr();
    {
      const auto server = store_with(values[server_encrypts], address, 0);
      try {
        store_with(values[!server_encrypts], address, 1);
      } catch (const PeerError& error) {
        said = error.what();
      }
    }
    const std::string logged = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr(server_encrypts ? "encryption (rank 1 has off, rank 0 has on)"
                                                : "encryption (rank 1 has on, rank 0 has off)"));
    EXPECT_THAT(logged, HasSubstr(server_encrypts ? "encryption (rank 0 has on, rank 1 has off)"
                                                  : "encryption (rank 0 has off, rank 1 has on)"));
    EXPECT_THAT(logged, HasSubstr("give every rank the same value"));
  }
}

/// Without a job key, the secret of the key file takes its place.
TEST(StoreEncryption, AKeyFileIsKeyEnough) {
  const std::string address = "127.0.0.1:" + std::to_string(mccl::testing::free_port());
  const auto server = store_with("on", address, 0, "");
  store_with("on", address, 1, "")->set("k", kSecretValue);
  EXPECT_EQ(server->get("k", kStoreLimit), kSecretValue);
}

TEST(StoreEncryption, AStoreWithoutAnyKeyIsRefused) {
  const Party access = {.keyless = Keyless::anyone, .encryption = Encryption::by_key()};
  for (const int rank : {0, 1}) {
    const std::string address = "127.0.0.1:" + std::to_string(mccl::testing::free_port());
    try {
      make_tcp_store_for(access, address, rank, 300ms, {});
      FAIL() << "a store without a key encrypts";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(rank)));
      EXPECT_THAT(error.what(), HasSubstr("MCCL_ENCRYPTION is on and needs a key"));
      EXPECT_THAT(error.what(), HasSubstr("export MCCL_JOB_KEY=$(openssl rand -hex 32)"));
    }
  }
}

TEST(StoreEncryption, AnInvalidSettingIsNamed) {
  const std::string address = "127.0.0.1:" + std::to_string(mccl::testing::free_port());
  try {
    store_with("maybe", address, 0);
    FAIL() << "the setting is invalid";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("MCCL_ENCRYPTION"));
  }
}

}  // namespace
}  // namespace mccl::rendezvous
