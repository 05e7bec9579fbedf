// Runs a handshake on a connection.
#pragma once

#include <string>

#include "base/clock.h"
#include "rendezvous/handshake.h"
#include "transport/tcp/socket.h"

namespace mccl::rendezvous {

/// Carries a handshake's bytes over a connected, non-blocking socket. Reads no bytes beyond the
/// handshake.
class Conversation {
 public:
  enum class State { waiting, done, refused, broken };

  Conversation(transport::tcp::Socket socket, Handshake handshake);

  /// Does all work that is possible without blocking. Returns State::refused only once the last
  /// message to the peer is sent.
  State advance();

  const Handshake& handshake() const { return handshake_; }
  /// The reason why the handshake was refused or the connection broke.
  const std::string& trouble() const { return trouble_; }
  int descriptor() const { return socket_.descriptor(); }
  /// The events to poll for.
  short events() const;
  /// Releases the socket. Requires State::done.
  transport::tcp::Socket take_socket() { return std::move(socket_); }

 private:
  bool flush();
  bool receive();
  void discard_input();
  State broke(int error);

  transport::tcp::Socket socket_;
  Handshake handshake_;
  std::string trouble_;
  bool broken_ = false;
};

/// Blocks until the handshake ends or the deadline passes. Returns false if it did not succeed,
/// with the reason in `trouble`.
bool converse(Conversation& conversation, Clock::time_point deadline, std::string& trouble);

}  // namespace mccl::rendezvous
