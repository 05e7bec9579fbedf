// A listening TCP socket, and one that gets its connections within this process.
#pragma once

#include <cstddef>
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

class Listener {
 public:
  /// Binds `address` and listens; [::] also accepts IPv4 connections. Throws BindError.
  Listener(const Address& address, std::size_t buffer_bytes);
  /// Makes a listener that returns connections handed over within this process; used by
  /// Inlet::listener().
  explicit Listener(Socket inlet);

  const Address& address() const { return address_; }
  int descriptor() const { return socket_.descriptor(); }
  void close() noexcept { socket_.close(); }

  /// Returns the next waiting connection; never blocks.
  Accepted accept();

 private:
  Socket socket_;
  Address address_;
  bool is_inlet_ = false;
};

/// Passes connections that another part of this process has accepted to a listener, which returns
/// them in order, as if it had accepted them itself. hand_over() and listener()
/// may be called by different threads, but each by one thread at a time.
class Inlet {
 public:
  /// Throws Error.
  Inlet();

  /// May be called only once.
  Listener listener() { return Listener(std::move(reading_end_)); }
  /// Never blocks. The connection is closed if the listener has closed or its queue is full.
  void hand_over(Socket socket);

 private:
  Socket reading_end_;
  Socket writing_end_;
};

}  // namespace mccl::transport::tcp
