// A buffered stream of bytes over a connection, and the handshake with which a connection begins.
#pragma once

#include <poll.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/clock.h"
#include "rendezvous/connections/handshake.h"
#include "rendezvous/connections/wire.h"

namespace mccl::rendezvous {

/// A connected, non-blocking socket and the bytes that wait to be sent on it. Handshakes, the store
/// and trunks (link_state.h) use a ByteStream for all bytes. No call blocks.
class ByteStream {
 public:
  ByteStream() = default;
  explicit ByteStream(Socket socket) : socket_(std::move(socket)) {}

  void queue(std::span<const std::byte> bytes);
  bool has_output() const { return !output_.empty() || socket_.pending() > 0; }
  /// True if the encryption layer holds received bytes. receive() may return them, but poll(2) does
  /// not report them.
  bool has_input() const { return socket_.has_input(); }
  /// Sends as much of the queue as the system takes. Returns false if the connection is broken.
  bool flush();
  /// Receives into `to` until it has `most` bytes or no more have arrived. Returns false once the
  /// connection has ended.
  bool receive(Bytes& to, std::size_t most);

  /// True once flush() or receive() has returned false.
  bool has_ended() const { return ended_; }
  /// The errno with which the connection ended; 0 if the other end closed it.
  int error() const { return error_; }

  const Socket& socket() const { return socket_; }
  /// Makes all later bytes pass through the encrypted stream. Requires an empty queue.
  void encrypt(std::unique_ptr<transport::tcp::SecureStream> stream) {
    socket_.encrypt(std::move(stream));
  }
  Socket take_socket() { return std::move(socket_); }
  /// Returns the entry for poll(2). If `reads` is false, the entry does not wait for input.
  pollfd watched(bool reads = true) const;

 private:
  /// Returns true if the system call that failed with `error` can be repeated later. Otherwise
  /// records the end of the connection.
  bool is_open_after(int error);

  Socket socket_;
  Bytes output_;
  std::size_t sent_ = 0;  ///< Number of bytes of output_ that have been sent.
  bool ended_ = false;
  int error_ = 0;
};

/// Runs a handshake over a connected, non-blocking socket. Then sets up encryption, if agreed.
/// Reads no bytes beyond the handshake.
class Conversation {
 public:
  enum class State { waiting, done, refused, broken };

  Conversation(Socket socket, Handshake handshake)
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
  Socket take_socket() { return stream_.take_socket(); }

 private:
  State broken();
  /// Starts or continues to set up the encryption. Requires that the handshake is done.
  State encrypt();
  bool is_encrypted() const { return stream_.socket().secure() != nullptr; }

  ByteStream stream_;
  Handshake handshake_;
  std::string trouble_;
};

}  // namespace mccl::rendezvous
