// Sockets between the processes of one machine, which carry descriptors.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/shm/memory_file.h"

namespace mccl::transport::shm {

/// A connection to a process of the same user. Blocking, each call until its deadline.
class LocalConnection {
 public:
  LocalConnection() = default;
  explicit LocalConnection(Descriptor socket) : socket_(std::move(socket)) {}

  /// An empty connection when nobody of the name listens on this machine (or in this container), or
  /// when the listener's queue stays full.
  static LocalConnection dial(const std::string& name, Clock::time_point deadline);

  explicit operator bool() const { return static_cast<bool>(socket_); }
  int descriptor() const { return socket_.get(); }
  /// Whether the other end runs as the same user.
  bool same_user() const;
  /// Throws PeerError.
  void send(std::span<const std::byte> bytes, std::span<const int> descriptors) const;
  /// As many bytes as there is room for, and the descriptors that come with them. Throws PeerError,
  /// TimeoutError.
  std::vector<Descriptor> receive(std::span<std::byte> bytes, Clock::time_point deadline) const;

 private:
  Descriptor socket_;
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
  /// Throws TimeoutError, and Error when the system lets no more connections in.
  LocalConnection accept(Clock::time_point deadline) const;

 private:
  std::string name_;
  Descriptor socket_;
};

}  // namespace mccl::transport::shm
