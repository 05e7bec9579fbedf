// The TLS 1.3 handshake of one connection, by OpenSSL.
//
// Both ends derive a key for this connection from the job key and the messages of MCCL's own
// handshake, which comes first. Without certificates, that key is the external pre-shared key of
// TLS 1.3. An ephemeral key exchange keeps recorded traffic secret even if the job key becomes
// known later. With certificates, each end proves inside TLS that it knows the key of the
// connection. This proof binds the TLS handshake to MCCL's own handshake.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "transport/tcp/encryption.h"
#include "transport/tcp/record_keys.h"

struct ssl_st;

namespace mccl::transport::tcp {

/// Reasons why a peer cannot be used.
inline constexpr const char* kClosedEarly = "it closed the connection while encryption was set up";
inline constexpr const char* kBrokeEarly = "the connection broke while encryption was set up";

enum class TlsRole : std::uint8_t { client, server };

inline constexpr std::size_t kConnectionKeyBytes = 32;
using ConnectionKey = std::array<std::byte, kConnectionKeyBytes>;

/// Not thread-safe. No call blocks.
class TlsHandshake {
 public:
  /// `descriptor` is a connected, non-blocking socket, which must stay open for the life of this
  /// object. Throws Error if OpenSSL has no memory.
  TlsHandshake(std::shared_ptr<const Encryption> encryption, TlsRole role, const ConnectionKey& key,
               int descriptor);
  ~TlsHandshake();
  TlsHandshake(const TlsHandshake&) = delete;
  TlsHandshake& operator=(const TlsHandshake&) = delete;

  /// Called by OpenSSL with each secret of a handshake, in the format of SSLKEYLOGFILE (RFC 9850):
  /// a name, the random value of the client and the secret, the last two in hexadecimal digits.
  /// Keeps the two secrets of the encrypted records.
  static void keep_secret(const ssl_st* ssl, const char* line);

  enum class State : std::uint8_t { waiting, done, failed };
  /// Sends and receives messages of the handshake. Receives no byte after them.
  State advance();
  /// The reason for State::failed.
  const std::string& trouble() const { return trouble_; }

  // Results of the handshake, after State::done.

  /// The secret of the bytes that `role` sends.
  const TrafficSecret& secret_of(TlsRole role) const {
    return secrets_[static_cast<std::size_t>(role)];
  }
  /// Returns the proof by which `role` shows that it knows the key of the connection. The proof
  /// covers a value that only the two ends of this TLS connection have. Throws Error if OpenSSL
  /// cannot compute it.
  ConnectionKey proof_of(TlsRole role) const;

 private:
  struct Callbacks;  ///< The functions that OpenSSL calls.

  State fail(std::string why);
  /// Sends the bytes that OpenSSL has written. Returns 0 if all bytes are sent, else an errno.
  int flush() noexcept;

  std::shared_ptr<const Encryption> encryption_;
  ssl_st* ssl_;
  const int descriptor_;
  ConnectionKey key_;
  std::array<TrafficSecret, 2> secrets_{};  ///< Indexed by TlsRole.
  std::array<bool, 2> has_secret_{};        ///< True for the secrets that OpenSSL has reported.
  std::size_t sent_ = 0;                    ///< Number of bytes to send that the system has taken.
  std::string trouble_;
};

/// Returns the text of an alert that a peer sent, such as "unknown CA".
const char* alert_text(std::byte alert);

}  // namespace mccl::transport::tcp
