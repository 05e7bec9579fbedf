#include "rendezvous/connections/proof.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "mccl/error.h"
#include "rendezvous/connections/wire.h"

namespace mccl::rendezvous {

Nonce make_nonce() {
  Nonce nonce;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) !=
      1) {
    throw Error("OpenSSL supplies no random bytes; check that the system's random source works");
  }
  return nonce;
}

std::string make_job_key() { return hex_of(make_nonce()); }

std::string hex_of(std::span<const std::byte> bytes) {
  std::string digits;
  for (const std::byte byte : bytes) digits += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return digits;
}

namespace {

Proof mac(std::string_view key, std::span<const std::byte> message) {
  Proof proof;
  unsigned int length = 0;
  // OpenSSL treats a null key differently from an empty one.
  const char* secret = key.empty() ? "" : key.data();
  if (HMAC(EVP_sha256(), secret, static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(),
           reinterpret_cast<unsigned char*>(proof.data()), &length) == nullptr ||
      length != proof.size()) {
    throw Error("OpenSSL cannot compute HMAC-SHA256; check the OpenSSL configuration");
  }
  return proof;
}

}  // namespace

Proof prove(std::string_view key, std::string_view label, std::span<const std::byte> data) {
  Bytes message;
  message.reserve(label.size() + 1 + data.size());
  append(message, bytes_of(label));
  message.push_back(std::byte{0});
  append(message, data);
  return mac(key, message);
}

Proof derive(std::string_view key, std::span<const std::byte> salt, std::string_view label) {
  // HKDF with a single block of output: extract, then expand.
  std::array<std::byte, kProofBytes> hashed;
  unsigned int length = 0;
  if (EVP_Digest(salt.data(), salt.size(), reinterpret_cast<unsigned char*>(hashed.data()), &length,
                 EVP_sha256(), nullptr) != 1) {
    throw Error("OpenSSL cannot compute SHA-256; check the OpenSSL configuration");
  }
  Proof extracted = mac(text_of(hashed), bytes_of(key));
  Bytes info(bytes_of(label).begin(), bytes_of(label).end());
  info.push_back(std::byte{1});
  const Proof derived = mac(text_of(extracted), info);
  erase(extracted);
  return derived;
}

void erase(std::span<std::byte> secret) { OPENSSL_cleanse(secret.data(), secret.size()); }

bool same_proof(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace mccl::rendezvous
