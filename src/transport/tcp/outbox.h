// Encrypted streams that hold bytes which the system has not taken yet. A link that has accepted
// all bytes of its owner is not written to again, so the transport sends the rest.
#pragma once

#include <poll.h>

#include <vector>

namespace mccl::transport::tcp {

class SecureStream;

/// The streams of one transport. Not thread-safe: it is used under the same lock as its streams.
class Outbox {
 public:
  /// Reserves memory for one more stream, so that wait() needs none. Throws std::bad_alloc.
  void join();
  void leave(const SecureStream& stream) noexcept;

  /// Called by a stream that holds bytes.
  void wait(SecureStream& stream) noexcept;
  /// Appends the descriptors at which sending may go on.
  void watch(std::vector<pollfd>& descriptors);
  /// True if a stream holds bytes that did not when watch() was called last, so a thread that
  /// sleeps does not watch it yet.
  bool has_unwatched() const { return has_unwatched_; }
  /// Sends what the system takes now.
  void flush() noexcept;

 private:
  std::size_t members_ = 0;
  std::vector<SecureStream*> waiting_;
  bool has_unwatched_ = false;
};

}  // namespace mccl::transport::tcp
