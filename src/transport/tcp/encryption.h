// Parameters of TLS 1.3 for all encrypted connections of a process. Only tls_handshake.cpp
// and encryption.cpp use OpenSSL's TLS.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "mccl/config.h"

struct ssl_ctx_st;

namespace mccl::transport::tcp {

/// Paths of PEM files.
struct CertificateFiles {
  std::string certificate;  ///< This rank's certificate, followed by intermediate certificates.
  std::string key;          ///< The private key of the certificate.
  std::string authority;    ///< Certificates of the authorities that sign the ranks' certificates.
};

/// When the kernel encrypts the bytes of links, on hosts where it can; see kernel_tls.h.
enum class KernelTls : std::uint8_t {
  never,
  without_threads,  ///< If this process has no core left for threads that encrypt.
  always,
};

/// The TLS parameters of a job. Either all ranks authenticate by keys that are derived from the job
/// key, or all by certificates. Immutable and thread-safe.
class Encryption {
 public:
  /// Number of full records sent under one key before the key is replaced. RFC 8446, section 5.5,
  /// allows about 2^24.5 records under one key of AES-GCM.
  static constexpr std::uint64_t kRecordsPerKey = std::uint64_t{1} << 23;

  /// Authenticates by a secret key per connection, which only the two ends have; see TlsHandshake.
  /// Throws Error if OpenSSL does not offer TLS 1.3 with the required ciphers.
  static std::shared_ptr<const Encryption> by_key(std::uint64_t records_per_key = kRecordsPerKey,
                                                  KernelTls kernel_tls = KernelTls::never);
  /// Requires a certificate, signed by the authority, from both ends, in addition to the key of the
  /// connection. Throws InvalidArgument if a file cannot be used.
  static std::shared_ptr<const Encryption> by_certificates(const CertificateFiles& files,
                                                           KernelTls kernel_tls = KernelTls::never);

  /// Returns the encryption that the settings request; null if connections are not encrypted.
  static std::shared_ptr<const Encryption> of(const Config& config);

  ~Encryption();
  Encryption(const Encryption&) = delete;
  Encryption& operator=(const Encryption&) = delete;

  bool has_certificates() const { return has_certificates_; }
  std::uint64_t records_per_key() const { return records_per_key_; }
  KernelTls kernel_tls() const { return kernel_tls_; }
  /// How peers authenticate: "job key" or "certificates". Both ends must have the same value.
  std::string_view identity() const { return has_certificates_ ? "certificates" : "job key"; }
  ssl_ctx_st* context() const { return context_; }

 private:
  Encryption(std::uint64_t records_per_key, KernelTls kernel_tls);

  ssl_ctx_st* context_;
  std::uint64_t records_per_key_;
  KernelTls kernel_tls_;
  bool has_certificates_ = false;
};

/// Returns OpenSSL's text for its last error on this thread, and clears OpenSSL's queue of errors.
std::string take_openssl_error();

}  // namespace mccl::transport::tcp
