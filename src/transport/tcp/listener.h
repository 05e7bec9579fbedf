// A Listener accepts TCP connections from a listening socket, or returns connections that another
// part of this process passes to it through an Inlet.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "transport/tcp/socket.h"

namespace mccl::transport::tcp {

/// Thrown if a listening socket cannot be made; `code` is the errno.
class BindError : public SocketError {
 public:
  using SocketError::SocketError;
  explicit BindError(const SocketError& error) : SocketError(error) {}
};

struct Accepted {
  Socket socket;  ///< Empty if no connection waits, or if `error` is set.
  Address from;
  /// An errno if accepting failed, such as EMFILE for lack of descriptors; the caller should retry
  /// later.
  int error = 0;
};

class HandedOver;

class Listener {
 public:
  /// Binds `address` and listens; [::] also accepts IPv4 connections. Throws BindError if the
  /// system refuses.
  Listener(const Address& address, std::size_t buffer_bytes);
  /// Used by Inlet::listener(): makes a listener that returns the connections given to
  /// Inlet::hand_over().
  explicit Listener(std::shared_ptr<HandedOver> inlet) : inlet_(std::move(inlet)) {}

  const Address& address() const { return address_; }
  int descriptor() const;
  void close() noexcept {
    socket_.close();
    inlet_.reset();
  }

  /// Returns the next waiting connection; never blocks.
  Accepted accept();

 private:
  Socket socket_;
  Address address_;
  std::shared_ptr<HandedOver> inlet_;  ///< Null if `socket_` listens.
};

/// Passes connections that another part of this process has accepted to a Listener, which returns
/// them in order, as if it had accepted them itself. One thread may call hand_over() while another
/// uses the listener.
class Inlet {
 public:
  /// Throws Error if the pipe that wakes the listener cannot be made.
  Inlet();

  /// Returns the listener of this inlet. May be called only once.
  Listener listener() { return Listener(std::exchange(unclaimed_, nullptr)); }
  /// Passes the connection to the listener; never blocks. Closes the connection if the listener has
  /// closed or its queue is full.
  void hand_over(Socket socket);

 private:
  std::shared_ptr<HandedOver> unclaimed_;  ///< Null after listener() was called.
  std::weak_ptr<HandedOver> connections_;
};

}  // namespace mccl::transport::tcp
