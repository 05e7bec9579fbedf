// Sockets between processes of one machine, which can pass descriptors.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/descriptor.h"
#include "mccl/error.h"

namespace mccl::node {

/// Thrown if this process, or the system, has no descriptors left.
class OutOfDescriptors : public Error {
 public:
  using Error::Error;
};

/// A connection to another process of this machine. The caller must check same_user().
class LocalConnection {
 public:
  LocalConnection() = default;
  explicit LocalConnection(Descriptor socket) : socket_(std::move(socket)) {}

  /// Connects without waiting. The connection is empty if no process of this machine (or container)
  /// listens under the name, or if the listener's queue is full. In the latter case the second
  /// value is true, and a retry may succeed. Throws Error if no socket can be made.
  static std::pair<LocalConnection, bool> dial(const std::string& name);

  explicit operator bool() const { return static_cast<bool>(socket_); }
  int descriptor() const { return socket_.get(); }
  /// True if the peer runs as the same user as this process.
  bool same_user() const;
  /// Sends all bytes or none. Returns false if this user already has too many descriptors in
  /// flight. The caller may retry once some have been received. Throws PeerError if the peer has
  /// disconnected.
  bool send(std::span<const std::byte> bytes, std::span<const int> descriptors) const;
  /// Fills `bytes` completely, and returns the descriptors that arrive with them. Throws PeerError,
  /// TimeoutError, OutOfDescriptors.
  std::vector<Descriptor> receive(std::span<std::byte> bytes, Clock::time_point deadline) const;

 private:
  Descriptor socket_;
};

/// A listening local socket with an unpredictable name.
class LocalListener {
 public:
  /// Throws Error if it cannot listen.
  explicit LocalListener(int backlog);
  ~LocalListener();
  LocalListener(const LocalListener&) = delete;
  LocalListener& operator=(const LocalListener&) = delete;

  const std::string& name() const { return name_; }
  int descriptor() const { return socket_.get(); }
  /// Waits for a connection. Throws TimeoutError, OutOfDescriptors, and Error if the system refuses
  /// to accept connections.
  LocalConnection accept(Clock::time_point deadline) const;

 private:
  std::string name_;
  Descriptor socket_;
};

}  // namespace mccl::node
