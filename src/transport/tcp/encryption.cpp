#include "transport/tcp/encryption.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cstring>

#include "mccl/error.h"
#include "transport/tcp/tls_handshake.h"

namespace mccl::transport::tcp {
namespace {

/// The only cipher. Processors of servers and desktops compute it in hardware.
constexpr const char* kCipher = "TLS_AES_128_GCM_SHA256";

/// Throws InvalidArgument. The message names the cause: the first error in OpenSSL's queue if that
/// is an error of the operating system, otherwise the last error in the queue.
[[noreturn]] void refuse_file(std::string_view setting, const std::string& path) {
  const unsigned long cause = ERR_peek_error();
  const std::string reason = ERR_SYSTEM_ERROR(cause)
                                 ? std::strerror(static_cast<int>(ERR_GET_REASON(cause)))
                                 : take_openssl_error();
  ERR_clear_error();
  throw InvalidArgument(
      fmt::format("{}: cannot use the file {}: {}; give a PEM file without a passphrase", setting,
                  path.empty() ? "(not set)" : path, reason));
}

}  // namespace

std::string take_openssl_error() {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = ERR_reason_error_string(code);
  std::string text = reason ? reason : code != 0 ? "an error without a text" : "no reason is known";
  ERR_clear_error();
  return text;
}

Encryption::Encryption(std::uint64_t records_per_key, KernelTls kernel_tls)
    : records_per_key_(records_per_key), kernel_tls_(kernel_tls) {
  // Prevents OpenSSL's cleanup at exit, because the progress thread may still use OpenSSL then.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);
  ERR_clear_error();
  context_ = SSL_CTX_new(TLS_method());
  if (context_ == nullptr || SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context_, kCipher) != 1) {
    const std::string reason = take_openssl_error();
    SSL_CTX_free(context_);
    throw Error("OpenSSL offers no TLS 1.3 with AES-128-GCM (" + reason +
                "); check the OpenSSL configuration, or set MCCL_ENCRYPTION=off");
  }
  SSL_CTX_set_keylog_callback(context_, &TlsHandshake::keep_secret);
  // A TLS session is never resumed: each connection has its own keys.
  SSL_CTX_set_num_tickets(context_, 0);
  SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
}

std::shared_ptr<const Encryption> Encryption::of(const Config& config) {
  if (config.encryption != "on") return nullptr;
  const bool has_files =
      !config.tls_cert.empty() || !config.tls_key.empty() || !config.tls_ca.empty();
  const KernelTls kernel_tls = config.kernel_tls == "on"    ? KernelTls::always
                               : config.kernel_tls == "off" ? KernelTls::never
                                                            : KernelTls::without_threads;
  if (!has_files) return by_key(kRecordsPerKey, kernel_tls);
  return by_certificates({config.tls_cert, config.tls_key, config.tls_ca}, kernel_tls);
}

Encryption::~Encryption() { SSL_CTX_free(context_); }

std::shared_ptr<const Encryption> Encryption::by_key(std::uint64_t records_per_key,
                                                     KernelTls kernel_tls) {
  return std::shared_ptr<const Encryption>(new Encryption(records_per_key, kernel_tls));
}

std::shared_ptr<const Encryption> Encryption::by_certificates(const CertificateFiles& files,
                                                              KernelTls kernel_tls) {
  std::shared_ptr<Encryption> made(new Encryption(kRecordsPerKey, kernel_tls));
  SSL_CTX* const context = made->context_;
  made->has_certificates_ = true;
  if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1)
    refuse_file("MCCL_TLS_CERT", files.certificate);
  // Without this callback, OpenSSL would ask for a passphrase at the terminal or on standard input.
  SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void*) { return 0; });
  if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    refuse_file("MCCL_TLS_KEY", files.key);
  }
  if (SSL_CTX_load_verify_file(context, files.authority.c_str()) != 1)
    refuse_file("MCCL_TLS_CA", files.authority);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return made;
}

}  // namespace mccl::transport::tcp
