// Tests the encryption of TLS records against the example of RFC 8448, and whole connections
// against OpenSSL's own record layer.
#include "transport/tcp/record_keys.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "support/hex.h"
#include "transport/tcp_pair.h"

namespace mccl::transport::tcp {
namespace {

using Bytes = std::vector<std::byte>;
using Use = RecordKeys::Use;
using mccl::testing::bytes_of_hex;

TrafficSecret secret_of(std::string_view digits) {
  TrafficSecret secret;
  std::ranges::copy(bytes_of_hex(digits), secret.begin());
  return secret;
}

Bytes sealed(RecordKeys& keys, std::uint64_t number, ContentType type, const Bytes& payload) {
  Bytes record(payload.size() + kRecordOverhead);
  EXPECT_TRUE(keys.seal(0, number, type, {payload, {}}, record.data()));
  return record;
}

/// The client's first application record in RFC 8448, section 3.
TEST(RecordKeys, SealTheRecordOfTheStandard) {
  RecordKeys keys(Use::seal,
                  secret_of("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5"));
  Bytes payload;
  for (int i = 0; i < 50; ++i) payload.push_back(static_cast<std::byte>(i));
  EXPECT_EQ(
      sealed(keys, 0, ContentType::application_data, payload),
      bytes_of_hex("1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8"
                   "a5b46b395bd54a9a20441e2b62974e1f5a6292a2977014bd1e3deae63aeebb21694915e4"));
}

class PairOfKeys : public ::testing::Test {
 protected:
  TrafficSecret secret_ = secret_of(std::string(64, '7'));
  RecordKeys seals_{Use::seal, secret_};
  RecordKeys opens_{Use::open, secret_};
};

TEST_F(PairOfKeys, OpensWhatItSealed) {
  opens_.add_lanes(2);
  for (std::uint64_t number : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 40}) {
    for (std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, std::size_t{17}, kRecordPayloadBytes}) {
      const Bytes payload(bytes, std::byte{9});
      const Bytes record = sealed(seals_, number, ContentType::handshake, payload);
      EXPECT_EQ(record_size(record), record.size());
      Bytes text(bytes + 1, std::byte{1});
      const auto opened = opens_.open(number % 3, number, record, text.data());
      ASSERT_TRUE(opened);
      EXPECT_EQ(opened->type, ContentType::handshake);
      EXPECT_EQ(opened->bytes, bytes);
      EXPECT_TRUE(std::equal(payload.begin(), payload.end(), text.begin()));
      EXPECT_EQ(text.back(), std::byte{1}) << "it wrote beyond the payload";
    }
  }
}

TEST_F(PairOfKeys, AnyChangeIsNoticed) {
  const Bytes payload(20, std::byte{9});
  const Bytes record = sealed(seals_, 5, ContentType::application_data, payload);
  Bytes text(payload.size());
  EXPECT_TRUE(opens_.open(0, 5, record, text.data()));
  EXPECT_FALSE(opens_.open(0, 6, record, text.data()));
  for (std::size_t at = 0; at < record.size(); ++at) {
    Bytes changed = record;
    changed[at] ^= std::byte{4};
    if (record_size(changed) != record.size()) continue;
    EXPECT_FALSE(opens_.open(0, 5, changed, text.data())) << at;
  }
}

TEST_F(PairOfKeys, AReplacedKeyOpensOnlyNewRecords) {
  const Bytes payload(20, std::byte{9});
  const Bytes before = sealed(seals_, 0, ContentType::application_data, payload);
  ASSERT_TRUE(seals_.replace());
  const Bytes after = sealed(seals_, 0, ContentType::application_data, payload);
  EXPECT_NE(before, after);
  Bytes text(payload.size());
  EXPECT_FALSE(opens_.open(0, 0, after, text.data()));
  ASSERT_TRUE(opens_.replace());
  EXPECT_TRUE(opens_.open(0, 0, after, text.data()));
  EXPECT_FALSE(opens_.open(0, 0, before, text.data()));
}

TEST(RecordSize, AcceptsOnlyEncryptedRecords) {
  Bytes header = bytes_of_hex("1703030011");
  EXPECT_EQ(record_size(std::span(header).first(4)), 0u);
  EXPECT_EQ(record_size(header), 22u);
  for (const char* refused : {"1603030011", "1703040011", "1704030011", "1703030010", "1703034101"})
    EXPECT_FALSE(record_size(bytes_of_hex(refused))) << refused;
  EXPECT_TRUE(record_size(bytes_of_hex("1703034100")));
}

/// A client that uses OpenSSL's records, and a server that uses MCCL's.
class WithOpenSsl : public ::testing::Test {
 protected:
  void SetUp() override {
    encrypt(ends_.second, TlsRole::server, Encryption::by_key());
    SSL_set_fd(client_.get(), ends_.first.descriptor());
    SSL_set_connect_state(client_.get());
    SSL_set_psk_use_session_callback(client_.get(), &offer_key);
    const Clock::time_point limit = Clock::now() + std::chrono::seconds(20);
    while (ends_.second.secure()->advance() != SecureStream::State::open && Clock::now() < limit)
      (void)SSL_do_handshake(client_.get());
    ASSERT_TRUE(SSL_is_init_finished(client_.get()));
  }

  static int offer_key(SSL* ssl, const EVP_MD*, const unsigned char** name, std::size_t* length,
                       SSL_SESSION** session) {
    const auto key = test_key();
    constexpr unsigned char kCipher[] = {0x13, 0x01};
    *name = reinterpret_cast<const unsigned char*>("mccl");
    *length = 4;
    *session = SSL_SESSION_new();
    SSL_SESSION_set1_master_key(*session, reinterpret_cast<const unsigned char*>(key.data()),
                                key.size());
    SSL_SESSION_set_cipher(*session, SSL_CIPHER_find(ssl, kCipher));
    SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION);
    return 1;
  }

  void pass_to_client(const Bytes& bytes) {
    Bytes got(bytes.size());
    std::size_t sent = 0;
    std::size_t received = 0;
    const Clock::time_point limit = Clock::now() + std::chrono::seconds(20);
    while (received < bytes.size() && Clock::now() < limit) {
      sent += ends_.second.send(std::span(bytes).subspan(sent)).bytes;
      (void)ends_.second.flush();
      std::size_t more = 0;
      if (SSL_read_ex(client_.get(), got.data() + received, got.size() - received, &more) == 1)
        received += more;
    }
    EXPECT_TRUE(got == bytes);
  }

  void pass_to_server(const Bytes& bytes) {
    Bytes got(bytes.size());
    std::size_t sent = 0;
    std::size_t received = 0;
    const Clock::time_point limit = Clock::now() + std::chrono::seconds(20);
    while (received < bytes.size() && Clock::now() < limit) {
      std::size_t more = 0;
      if (sent < bytes.size() &&
          SSL_write_ex(client_.get(), bytes.data() + sent, bytes.size() - sent, &more) == 1)
        sent += more;
      const auto [count, error] = ends_.second.receive(std::span(got).subspan(received));
      ASSERT_TRUE(count > 0 || error == EAGAIN) << error;
      received += count;
    }
    EXPECT_TRUE(got == bytes);
  }

  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  SocketPair ends_ = connected_sockets("127.0.0.1");
  std::unique_ptr<SSL_CTX, Free> context_{[] {
    SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE);
    return context;
  }()};
  std::unique_ptr<SSL, Free> client_{SSL_new(context_.get())};
  Bytes block_ = Bytes(100'000, std::byte{3});
};

TEST_F(WithOpenSsl, BytesPassInBothDirections) {
  pass_to_client(block_);
  pass_to_server(block_);
}

TEST_F(WithOpenSsl, KeysAreReplacedInBothDirections) {
  pass_to_server(block_);
  // The server must replace its key too.
  ASSERT_EQ(SSL_key_update(client_.get(), SSL_KEY_UPDATE_REQUESTED), 1);
  pass_to_server(block_);
  pass_to_client(block_);
  ASSERT_EQ(SSL_key_update(client_.get(), SSL_KEY_UPDATE_NOT_REQUESTED), 1);
  pass_to_server(block_);
  ASSERT_TRUE(ends_.second.secure()->replace_key());
  pass_to_client(block_);
}

TEST_F(WithOpenSsl, TheEndOfTheStreamIsUnderstood) {
  ASSERT_GE(SSL_shutdown(client_.get()), 0);
  Bytes got(10);
  tcp::TransferResult moved{0, EAGAIN};
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(20);
  while (moved.error == EAGAIN && Clock::now() < limit) moved = ends_.second.receive(got);
  EXPECT_EQ(moved.bytes + static_cast<std::size_t>(moved.error), 0u);
  ends_.second.close();
  std::size_t more = 0;
  int result = 0;
  do {
    result = SSL_read_ex(client_.get(), got.data(), got.size(), &more);
  } while (SSL_get_error(client_.get(), result) == SSL_ERROR_WANT_READ && Clock::now() < limit);
  EXPECT_EQ(SSL_get_error(client_.get(), result), SSL_ERROR_ZERO_RETURN);
}

}  // namespace
}  // namespace mccl::transport::tcp
