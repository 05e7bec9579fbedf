// Runs a handshake on a connection, and then begins its encryption.
#pragma once

#include <string>

#include "base/clock.h"
#include "rendezvous/connections/byte_stream.h"
#include "rendezvous/connections/handshake.h"

namespace mccl::rendezvous {

/// Carries a handshake's bytes over a connected, non-blocking socket. Returns no bytes beyond the
/// handshake.
class Conversation {
 public:
  enum class State { waiting, done, refused, broken };

  Conversation(transport::tcp::Socket socket, Handshake handshake)
      : stream_(std::move(socket)), handshake_(std::move(handshake)) {}

  /// Does all work that is possible without blocking. Returns State::refused only once the last
  /// message to the peer is sent.
  State advance();

  const Handshake& handshake() const { return handshake_; }
  /// The reason why the handshake was refused or the connection broke.
  const std::string& trouble() const { return trouble_; }
  /// The entry for poll(2).
  pollfd watched() const { return stream_.watched(handshake_.wanted() > 0 || is_encrypted()); }
  /// Releases the socket. Requires State::done.
  transport::tcp::Socket take_socket() { return stream_.take_socket(); }

 private:
  State broken();
  /// Called once the handshake is done.
  State encrypt();
  bool is_encrypted() const { return stream_.socket().secure() != nullptr; }

  ByteStream stream_;
  Handshake handshake_;
  std::string trouble_;
};

}  // namespace mccl::rendezvous
