#include "transport/tcp/tls_handshake.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "base/no_signal.h"
#include "base/secret.h"
#include "base/would_block.h"
#include "mccl/error.h"

namespace mccl::transport::tcp {
namespace {

constexpr std::string_view kIdentity = "mccl";
constexpr std::string_view kProofLabel = "EXPORTER-mccl-proof";
/// The names of the secrets from which the keys of the records are derived, in the order of
/// TlsRole.
constexpr std::array<std::string_view, 2> kSecretNames = {"CLIENT_TRAFFIC_SECRET_0 ",
                                                          "SERVER_TRAFFIC_SECRET_0 "};

/// Size in bytes of OpenSSL's structure for a connection: more than any version from 3.0 to 3.5
/// uses.
constexpr std::size_t kConnectionBytes = std::size_t{16} << 10;

/// Returns the reason why the handshake failed.
std::string reason_of(const SSL* ssl) {
  if (ERR_GET_REASON(ERR_peek_last_error()) != SSL_R_CERTIFICATE_VERIFY_FAILED)
    return "encryption cannot be set up: " + take_openssl_error();
  const long verdict = SSL_get_verify_result(ssl);
  return fmt::format("its certificate is refused: {}", X509_verify_cert_error_string(verdict));
}

}  // namespace

struct TlsHandshake::Callbacks {
  static TlsHandshake& handshake_of(const SSL* ssl) {
    return *static_cast<TlsHandshake*>(SSL_get_app_data(ssl));
  }

  /// Returns the pre-shared key in the form that OpenSSL accepts; null on failure.
  static SSL_SESSION* session(SSL* ssl) {
    const ConnectionKey& key = handshake_of(ssl).key_;
    constexpr unsigned char kCipher[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256 (RFC 8446, B.4)
    const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipher);
    SSL_SESSION* session = SSL_SESSION_new();
    if (session != nullptr && cipher != nullptr &&
        SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()),
                                    key.size()) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
      return session;
    }
    SSL_SESSION_free(session);
    return nullptr;
  }

  static int offer_key(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* length,
                       SSL_SESSION** session_of_key) {
    *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
    *length = kIdentity.size();
    *session_of_key = session(ssl);
    return *session_of_key != nullptr;
  }

  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t length,
                      SSL_SESSION** session_of_key) {
    *session_of_key = nullptr;
    if (std::string_view(reinterpret_cast<const char*>(identity), length) != kIdentity) return 1;
    *session_of_key = session(ssl);
    return *session_of_key != nullptr;
  }
};

void TlsHandshake::keep_secret(const ssl_st* ssl, const char* line) {
  const std::string_view text(line);
  for (std::size_t role = 0; role < kSecretNames.size(); ++role) {
    if (!text.starts_with(kSecretNames[role])) continue;
    TlsHandshake& handshake = Callbacks::handshake_of(ssl);
    TrafficSecret& secret = handshake.secrets_[role];
    const std::string_view digits = text.substr(text.rfind(' ') + 1);
    handshake.has_secret_[role] =
        digits.size() == 2 * secret.size() &&
        OPENSSL_hexstr2buf_ex(reinterpret_cast<unsigned char*>(secret.data()), secret.size(),
                              nullptr, digits.data(), '\0') == 1;
  }
}

TlsHandshake::TlsHandshake(std::shared_ptr<const Encryption> encryption, TlsRole role,
                           const ConnectionKey& key, int descriptor)
    : encryption_(std::move(encryption)),
      ssl_(SSL_new(encryption_->context())),
      descriptor_(descriptor),
      key_(key) {
  // OpenSSL receives from the socket, and only the bytes that it needs: all others stay in the
  // kernel, so that poll(2) reports them to the next owner of the socket. OpenSSL would also send
  // to the socket, but a send of its own may raise SIGPIPE. SSL_set_fd() would also prepare the
  // socket for TLS of the kernel.
  BIO* const incoming = BIO_new_socket(descriptor, BIO_NOCLOSE);
  BIO* const outgoing = BIO_new(BIO_s_mem());
  if (ssl_ == nullptr || incoming == nullptr || outgoing == nullptr) {
    BIO_free(incoming);
    BIO_free(outgoing);
    SSL_free(ssl_);
    throw Error("OpenSSL has no memory for an encrypted connection");
  }
  // OpenSSL keeps secrets in this structure, and does not erase all of them when it frees it.
  leave_out_of_dumps(ssl_, kConnectionBytes);
  leave_out_of_dumps(this, sizeof *this);
  SSL_set_bio(ssl_, incoming, outgoing);
  SSL_set_app_data(ssl_, this);
  if (!encryption_->has_certificates()) {
    // Without authorities, SSL_VERIFY_PEER rejects a certificate in place of the key.
    if (role == TlsRole::client) SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);
    SSL_set_psk_use_session_callback(ssl_, &Callbacks::offer_key);
    SSL_set_psk_find_session_callback(ssl_, &Callbacks::find_key);
  }
  role == TlsRole::client ? SSL_set_connect_state(ssl_) : SSL_set_accept_state(ssl_);
}

TlsHandshake::~TlsHandshake() {
  SSL_free(ssl_);
  OPENSSL_cleanse(key_.data(), key_.size());
  OPENSSL_cleanse(secrets_.data(), sizeof secrets_);
}

TlsHandshake::State TlsHandshake::fail(std::string why) {
  trouble_ = std::move(why);
  (void)flush();  // Sends the TLS alert with the reason to the peer.
  return State::failed;
}

TlsHandshake::State TlsHandshake::advance() {
  if (!SSL_is_init_finished(ssl_)) {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_);
    if (result != 1) {
      const int cause = SSL_get_error(ssl_, result);
      if (cause == SSL_ERROR_SYSCALL || BIO_eof(SSL_get_rbio(ssl_))) return fail(kClosedEarly);
      if (cause != SSL_ERROR_WANT_READ) return fail(reason_of(ssl_));
      const int error = flush();
      return error == 0 || would_block(error) ? State::waiting : fail(kBrokeEarly);
    }
  }
  if (!encryption_->has_certificates() && SSL_session_reused(ssl_) != 1)
    return fail("it did not prove that it knows the key of the connection");
  if (!has_secret_[0] || !has_secret_[1])
    return fail("OpenSSL did not report the secrets of the connection");
  const int error = flush();
  if (would_block(error)) return State::waiting;
  return error == 0 ? State::done : fail(kBrokeEarly);
}

int TlsHandshake::flush() noexcept {
  BIO* const outgoing = SSL_get_wbio(ssl_);
  char* bytes = nullptr;
  const auto count = static_cast<std::size_t>(BIO_get_mem_data(outgoing, &bytes));
  while (sent_ < count) {
    const ssize_t taken = ::send(descriptor_, bytes + sent_, count - sent_, kNoSignal);
    if (taken >= 0) {
      sent_ += static_cast<std::size_t>(taken);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  (void)BIO_reset(outgoing);
  sent_ = 0;
  return 0;
}

ConnectionKey TlsHandshake::proof_of(TlsRole role) const {
  std::array<unsigned char, kConnectionKeyBytes + 1> covered{};
  covered.back() = static_cast<unsigned char>(role);
  ConnectionKey proof{};
  if (SSL_export_keying_material(ssl_, covered.data(), kConnectionKeyBytes, kProofLabel.data(),
                                 kProofLabel.size(), nullptr, 0, 0) != 1 ||
      HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()), covered.data(), covered.size(),
           reinterpret_cast<unsigned char*>(proof.data()), nullptr) == nullptr) {
    throw Error(
        "OpenSSL cannot compute the proof that this rank knows the key of an encrypted connection");
  }
  return proof;
}

const char* alert_text(std::byte alert) {
  return SSL_alert_desc_string_long(std::to_integer<int>(alert));
}

}  // namespace mccl::transport::tcp
