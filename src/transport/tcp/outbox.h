// The encrypted bytes of a transport that wait until the system takes them.
#pragma once

#include <poll.h>

#include <cstddef>
#include <vector>

#include "transport/tcp/cipher_threads.h"

namespace mccl::transport::tcp {

class SecureStream;

/// The streams of one transport that hold encrypted bytes which the system has not taken yet, and
/// the threads that help the streams. The transport sends these bytes, because the engine may never
/// write to the link again. Not thread-safe: used under the same lock as its streams.
class Outbox {
 public:
  /// `threads`: the number of threads that encrypt and decrypt beside the caller.
  explicit Outbox(std::size_t threads = 0) : threads_(threads) {}

  /// Reserves memory for one more stream, so that wait() need not allocate any. Throws
  /// std::bad_alloc.
  void join();
  void leave(const SecureStream& stream) noexcept;

  /// Adds a stream that holds bytes; no-op if the stream is already in the outbox.
  void wait(SecureStream& stream) noexcept;
  /// Appends the descriptors that become writable when held bytes can be sent.
  void watch(std::vector<pollfd>& descriptors);
  /// True if a stream has begun to hold bytes since the last call of watch(). A thread in poll(2)
  /// does not wait for that stream's descriptor yet.
  bool has_unwatched() const { return has_unwatched_; }
  /// Sends as many of the held bytes as the system takes now.
  void flush() noexcept;

  CipherThreads& threads() { return threads_; }

 private:
  CipherThreads threads_;
  std::size_t members_ = 0;
  std::vector<SecureStream*> waiting_;
  bool has_unwatched_ = false;
};

}  // namespace mccl::transport::tcp
