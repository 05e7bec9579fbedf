// A certificate authority that signs certificates for tests.
#pragma once

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "transport/tcp/encryption.h"

namespace mccl::testing {

/// Writes its files into a folder that exists.
class Authority {
 public:
  Authority(std::string folder, std::string name)
      : folder_(std::move(folder)), name_(std::move(name)), key_(new_key()) {
    certificate_ = make(name_, key_.get(), kYear, "CA:TRUE");
    write(path("ca"), [&](std::FILE* file) { return PEM_write_X509(file, certificate_.get()); });
  }

  /// Makes a key and a certificate that is valid for `seconds` from now. If `seconds` is negative,
  /// the certificate has expired.
  transport::tcp::CertificateFiles issue(const std::string& rank, long seconds = kYear) const {
    const Key key = new_key();
    const Certificate certificate = make(rank, key.get(), seconds, "CA:FALSE");
    const transport::tcp::CertificateFiles files{path(rank + "-cert"), path(rank + "-key"),
                                                 path("ca")};
    write(files.certificate,
          [&](std::FILE* file) { return PEM_write_X509(file, certificate.get()); });
    write(files.key, [&](std::FILE* file) {
      return PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
    return files;
  }

  std::string path(const std::string& what) const {
    return folder_ + "/" + name_ + "-" + what + ".pem";
  }

 private:
  static constexpr long kYear = 365L * 24 * 3600;
  static constexpr long kDay = 24L * 3600;

  template <auto free>
  struct Free {
    void operator()(auto* owned) const { free(owned); }
  };
  using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
  using Certificate = std::unique_ptr<X509, Free<X509_free>>;

  static Key new_key() { return Key(EVP_EC_gen("P-256")); }

  /// Signs with this authority's key.
  Certificate make(const std::string& common_name, EVP_PKEY* key, long seconds,
                   const char* constraints) const {
    Certificate made(X509_new());
    X509_set_version(made.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -kDay);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), seconds);
    X509_set_pubkey(made.get(), key);
    name(X509_get_subject_name(made.get()), common_name);
    name(X509_get_issuer_name(made.get()), name_);
    X509_EXTENSION* extension =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, constraints);
    X509_add_ext(made.get(), extension, -1);
    X509_EXTENSION_free(extension);
    EXPECT_GT(X509_sign(made.get(), key_.get(), EVP_sha256()), 0);
    return made;
  }

  static void name(X509_NAME* place, const std::string& text) {
    X509_NAME_add_entry_by_txt(place, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(text.c_str()), -1, -1, 0);
  }

  template <typename Write>
  static void write(const std::string& path, Write write_to) {
    std::FILE* file = std::fopen(path.c_str(), "w");
    ASSERT_NE(file, nullptr) << path;
    EXPECT_EQ(write_to(file), 1) << path;
    std::fclose(file);
  }

  std::string folder_;
  std::string name_;
  Key key_;
  Certificate certificate_;
};

}  // namespace mccl::testing
