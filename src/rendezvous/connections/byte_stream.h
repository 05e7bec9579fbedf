// Bytes over a connection. Every byte of a handshake, of the store and of a trunk passes through a
// ByteStream, which moves it with Socket::send() and Socket::receive().
#pragma once

#include <poll.h>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "base/clock.h"
#include "rendezvous/connections/wire.h"
#include "transport/tcp/socket.h"

namespace mccl::rendezvous {

/// A connected, non-blocking socket and the bytes that wait to be sent on it. No call blocks.
class ByteStream {
 public:
  ByteStream() = default;
  explicit ByteStream(transport::tcp::Socket socket) : socket_(std::move(socket)) {}

  void queue(std::span<const std::byte> bytes);
  bool has_output() const { return !output_.empty() || socket_.pending() > 0; }
  /// True if receive() may return bytes that poll(2) does not report.
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

  const transport::tcp::Socket& socket() const { return socket_; }
  /// From now on, all bytes pass through an encrypted stream. Requires an empty queue.
  void encrypt(std::unique_ptr<transport::tcp::SecureStream> stream) {
    socket_.encrypt(std::move(stream));
  }
  transport::tcp::Socket take_socket() { return std::move(socket_); }
  /// Returns the entry for poll(2). If `reads` is false, it does not wait for input.
  pollfd watched(bool reads = true) const;

 private:
  /// Returns true if the call that failed with `error` must be repeated later.
  bool is_open_after(int error);

  transport::tcp::Socket socket_;
  Bytes output_;
  std::size_t sent_ = 0;  ///< Bytes of output_ that have been sent.
  bool ended_ = false;
  int error_ = 0;
};

/// Blocks until the descriptor has one of the events. Returns false if the deadline passed first.
bool wait_for(int descriptor, short events, Clock::time_point deadline);

}  // namespace mccl::rendezvous
