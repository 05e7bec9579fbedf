// Sockets between the processes of one machine, which carry descriptors.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "mccl/error.h"
#include "node/memory_file.h"

namespace mccl::node {

/// This process may hold no more descriptors.
class OutOfDescriptors : public Error {
 public:
  using Error::Error;
};

/// A connection to a process of the same user.
class LocalConnection {
 public:
  LocalConnection() = default;
  explicit LocalConnection(Descriptor socket) : socket_(std::move(socket)) {}

  struct Dialled;
  /// Does not wait. Throws Error when there is no socket to be had.
  static Dialled dial(const std::string& name);

  explicit operator bool() const { return static_cast<bool>(socket_); }
  int descriptor() const { return socket_.get(); }
  /// Whether the other end runs as the same user.
  bool same_user() const;
  /// Sends all of it or nothing. False when the system passes no more descriptors of this user for
  /// now: try again when some have arrived. Throws PeerError.
  bool send(std::span<const std::byte> bytes, std::span<const int> descriptors) const;
  /// As many bytes as there is room for, and the descriptors that come with them. Throws PeerError,
  /// TimeoutError, OutOfDescriptors.
  std::vector<Descriptor> receive(std::span<std::byte> bytes, Clock::time_point deadline) const;

 private:
  Descriptor socket_;
};

/// An empty connection when nobody of the name listens on this machine (or in this container), or
/// when the listener's queue is full: then it is worth trying again.
struct LocalConnection::Dialled {
  LocalConnection connection;
  bool busy = false;
};

/// Listens under an unpredictable name.
class LocalListener {
 public:
  /// Throws Error.
  explicit LocalListener(int backlog);
  ~LocalListener();
  LocalListener(const LocalListener&) = delete;
  LocalListener& operator=(const LocalListener&) = delete;

  const std::string& name() const { return name_; }
  int descriptor() const { return socket_.get(); }
  /// Throws TimeoutError, OutOfDescriptors, and Error when the system lets no more connections in.
  LocalConnection accept(Clock::time_point deadline) const;

 private:
  std::string name_;
  Descriptor socket_;
};

}  // namespace mccl::node
