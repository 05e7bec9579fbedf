// Tests connections between processes that have certificates.
#include "support/certificates.h"

#include <gmock/gmock.h>

#include <fstream>

#include "support/folder.h"
#include "transport/tcp_pair.h"

namespace mccl::transport::tcp {
namespace {

using mccl::testing::Authority;
using ::testing::HasSubstr;
using State = SecureStream::State;

class Certificates : public ::testing::Test {
 protected:
  Outcome meet(const CertificateFiles& near, const CertificateFiles& far,
               const SecureStream::Key& far_key = test_key()) {
    ends_ = connected_sockets("127.0.0.1");
    encrypt(ends_.first, SecureStream::Role::client, Encryption::by_certificates(near));
    encrypt(ends_.second, SecureStream::Role::server, Encryption::by_certificates(far), far_key);
    return shake_hands(ends_);
  }
  const std::string& near_trouble() const { return ends_.first.secure()->trouble(); }
  const std::string& far_trouble() const { return ends_.second.secure()->trouble(); }

  mccl::testing::Folder folder_;
  Authority site_{folder_.path(), "site"};
  Authority other_{folder_.path(), "other"};
  SocketPair ends_;
};

TEST_F(Certificates, OfOneAuthorityAreAccepted) {
  const Outcome outcome = meet(site_.issue("rank0"), site_.issue("rank1"));
  EXPECT_EQ(outcome.near, State::open) << near_trouble();
  EXPECT_EQ(outcome.far, State::open) << far_trouble();
  const std::vector<std::byte> sent(100, std::byte{4});
  EXPECT_EQ(ends_.first.send(sent).bytes, sent.size());
  std::vector<std::byte> got(sent.size());
  pollfd entry = {ends_.second.descriptor(), POLLIN, 0};
  ASSERT_GT(::poll(&entry, 1, 20'000), 0);
  EXPECT_EQ(ends_.second.receive(got).bytes, sent.size());
  EXPECT_EQ(got, sent);
}

TEST_F(Certificates, BothSidesRefuseAnotherAuthority) {
  for (const bool dialer_is_wrong : {true, false}) {
    const Outcome outcome = meet((dialer_is_wrong ? other_ : site_).issue("rank0"),
                                 (dialer_is_wrong ? site_ : other_).issue("rank1"));
    EXPECT_EQ(outcome.near, State::failed);
    EXPECT_EQ(outcome.far, State::failed);
    EXPECT_THAT(near_trouble() + far_trouble(), HasSubstr("its certificate is refused"));
  }
}

TEST_F(Certificates, AnExpiredCertificateIsRefused) {
  const Outcome outcome = meet(site_.issue("rank0"), site_.issue("rank1", -60));
  EXPECT_EQ(outcome.near, State::failed);
  EXPECT_THAT(near_trouble(), HasSubstr("expired"));
}

/// If a certificate were enough, another process of the site could take over a connection after
/// MCCL's handshake.
TEST_F(Certificates, AreNotEnoughWithoutTheKeyOfTheConnection) {
  const Outcome outcome = meet(site_.issue("rank0"), site_.issue("rank1"), test_key(std::byte{9}));
  EXPECT_EQ(outcome.near, State::failed);
  EXPECT_EQ(outcome.far, State::failed);
  EXPECT_THAT(near_trouble(), HasSubstr("end at different processes"));
}

TEST_F(Certificates, ARankWithTheKeyAloneIsRefused) {
  ends_ = connected_sockets("127.0.0.1");
  encrypt(ends_.first, SecureStream::Role::client, Encryption::by_key());
  encrypt(ends_.second, SecureStream::Role::server,
          Encryption::by_certificates(site_.issue("rank1")));
  const Outcome outcome = shake_hands(ends_);
  EXPECT_EQ(outcome.near, State::failed);
  EXPECT_EQ(outcome.far, State::failed);
}

TEST_F(Certificates, FilesThatCannotBeUsedAreNamedWithTheirSetting) {
  const CertificateFiles good = site_.issue("rank0");
  std::ofstream(folder_.path() + "/empty.pem").close();
  const auto expect = [&](const CertificateFiles& files, const char* setting) {
    try {
      Encryption::by_certificates(files);
      ADD_FAILURE() << setting << " was accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(setting));
    }
  };
  for (const std::string& bad :
       {std::string(), std::string("/nowhere.pem"), folder_.path() + "/empty.pem"}) {
    expect({bad, good.key, good.authority}, "MCCL_TLS_CERT");
    expect({good.certificate, bad, good.authority}, "MCCL_TLS_KEY");
    expect({good.certificate, good.key, bad}, "MCCL_TLS_CA");
  }
  expect({good.certificate, site_.issue("rank1").key, good.authority}, "MCCL_TLS_KEY");
}

/// By default, OpenSSL asks for the passphrase at the terminal and waits for an answer.
TEST_F(Certificates, AKeyWithAPassphraseIsRefusedWithoutAQuestion) {
  const CertificateFiles files = site_.issue("rank0");
  std::FILE* file = std::fopen(files.key.c_str(), "r+");
  ASSERT_NE(file, nullptr);
  EVP_PKEY* const key = PEM_read_PrivateKey(file, nullptr, nullptr, nullptr);
  std::rewind(file);
  const unsigned char phrase[] = "secret";
  EXPECT_EQ(PEM_write_PrivateKey(file, key, EVP_aes_128_cbc(), phrase, 6, nullptr, nullptr), 1);
  std::fclose(file);
  EVP_PKEY_free(key);
  try {
    Encryption::by_certificates(files);
    FAIL() << "the key was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("without a passphrase"));
  }
}

}  // namespace
}  // namespace mccl::transport::tcp
