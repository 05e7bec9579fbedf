// Unix-domain sockets between processes of one host, over which file descriptors can be passed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/descriptor.h"
#include "mccl/error.h"

namespace mccl::node {

/// The folder of the sockets through which the ranks of this user report their status: mccl in
/// `/run/user/UID` if the system provides that folder, else /tmp/mccl-UID.
std::string status_folder();
/// Creates status_folder() if necessary, and returns its path. Throws Error if that fails, or if
/// other users can enter the folder.
std::string make_status_folder();

/// Requests that a rank accepts on its status socket: for its flight record, for its status, and
/// for the statuses of the other ranks. Each request has kRequestBytes bytes. The digit in it is
/// the version of the protocol.
inline constexpr std::size_t kRequestBytes = 8;
inline constexpr std::string_view kRequestRecord = "record1\n";
inline constexpr std::string_view kRequestStatus = "status1\n";
inline constexpr std::string_view kRequestOthers = "others1\n";

/// Thrown if this process, or the system, has no descriptors left.
class OutOfDescriptors : public Error {
 public:
  using Error::Error;
};

/// A connection to another process of this machine. The caller must check same_user() before it
/// trusts the peer.
class LocalConnection {
 public:
  LocalConnection() = default;
  explicit LocalConnection(Descriptor socket) : socket_(std::move(socket)) {}

  /// Connects without waiting. `name` is the name of a LocalListener. The connection is empty if no
  /// process of this machine (or container) listens under the name, or if the listener's queue is
  /// full. If the queue is full, the second value is true, and a retry may succeed. Throws Error if
  /// no socket can be made.
  static std::pair<LocalConnection, bool> dial(const std::string& name);

  explicit operator bool() const { return static_cast<bool>(socket_); }
  int descriptor() const { return socket_.get(); }
  /// True if the peer runs as the same user as this process.
  bool same_user() const;
  /// Returns the number of the process at the other end; 0 if this process cannot see it.
  pid_t process_id() const;
  /// Returns a descriptor of the process at the other end; see Neighbour::process.
  Descriptor process() const;
  /// Sends all bytes or none. Returns false if the system refuses for now, for example because this
  /// user has too many descriptors in flight; the caller may retry later. Throws PeerError if the
  /// peer has disconnected.
  bool send(std::span<const std::byte> bytes, std::span<const int> descriptors) const;
  /// Fills `bytes` completely, and returns the descriptors that arrive with them. Throws PeerError
  /// if the peer disconnects, TimeoutError at the deadline, or OutOfDescriptors.
  std::vector<Descriptor> receive(std::span<std::byte> bytes, Clock::time_point deadline) const;

 private:
  Descriptor socket_;
};

/// A listening local socket. A name that begins with a slash is the path of a file, which the
/// destructor removes.
class LocalListener {
 public:
  /// Listens under an unpredictable name. Throws Error if it cannot listen.
  explicit LocalListener(int backlog);
  LocalListener(std::string name, int backlog);
  ~LocalListener();
  LocalListener(const LocalListener&) = delete;
  LocalListener& operator=(const LocalListener&) = delete;

  const std::string& name() const { return name_; }
  int descriptor() const { return socket_.get(); }
  /// Closes the socket without removing the file. Called in the child of a fork, because the parent
  /// still uses the file.
  void abandon() noexcept { socket_.close(); }
  /// Waits for a connection. Throws TimeoutError at the deadline, OutOfDescriptors, or Error if the
  /// system refuses to accept connections.
  LocalConnection accept(Clock::time_point deadline) const;

 private:
  std::string name_;
  Descriptor socket_;
};

}  // namespace mccl::node
