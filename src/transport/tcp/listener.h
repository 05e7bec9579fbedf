// A listening TCP socket.
#pragma once

#include <cstddef>
#include <string>

#include "transport/tcp/socket.h"

namespace mccl::transport::tcp {

/// bind or listen failed; `code` is the errno.
class BindError : public SocketError {
 public:
  using SocketError::SocketError;
};

struct Accepted {
  Socket socket;  ///< Empty when nobody waits, or when `error` is set.
  Address from;
  int error = 0;  ///< The system is out of descriptors or memory: come back later.
};

class Listener {
 public:
  /// Binds `address` and listens; [::] listens to IPv4 as well. Throws BindError.
  Listener(const Address& address, std::size_t buffer_bytes);
  /// What is handed over within this process: Inlet::listener().
  explicit Listener(Socket inlet);

  const Address& address() const { return address_; }
  int descriptor() const { return socket_.descriptor(); }
  void close() noexcept { socket_.close(); }

  /// The next waiting connection; never blocks.
  Accepted accept();

 private:
  Socket socket_;
  Address address_;
  bool is_inlet_ = false;
};

}  // namespace mccl::transport::tcp
