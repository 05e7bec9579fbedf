// A listening TCP socket, and a listener whose connections are handed over by another part of this
// process.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "transport/tcp/socket.h"

namespace mccl::transport::tcp {

/// bind or listen failed; `code` is the errno.
class BindError : public SocketError {
 public:
  using SocketError::SocketError;
};

struct Accepted {
  Socket socket;  ///< Empty if no connection waits, or if `error` is set.
  Address from;
  /// The errno if the system is out of descriptors or memory; the caller should retry later.
  int error = 0;
};

class HandedOver;

class Listener {
 public:
  /// Binds `address` and listens; [::] also accepts IPv4 connections. Throws BindError.
  Listener(const Address& address, std::size_t buffer_bytes);
  /// Makes a listener that returns connections handed over within this process; used by
  /// Inlet::listener().
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
  std::shared_ptr<HandedOver> inlet_;  ///< Null for a listener at an address.
};

/// Passes connections that another part of this process has accepted to a listener, which returns
/// them in order, as if it had accepted them itself. hand_over() and listener() may be called by
/// different threads, but each by one thread at a time.
class Inlet {
 public:
  /// Throws Error.
  Inlet();

  /// Returns the listener of this inlet. May be called only once.
  Listener listener() { return Listener(std::exchange(unclaimed_, nullptr)); }
  /// Never blocks. The connection is closed if the listener has closed or its queue is full.
  void hand_over(Socket socket);

 private:
  std::shared_ptr<HandedOver> unclaimed_;  ///< Null once a listener has it.
  std::weak_ptr<HandedOver> connections_;
};

}  // namespace mccl::transport::tcp
