// Moves the data of one call between device memory and host memory.
#pragma once

#include <cstddef>
#include <memory>

#include "device/device.h"

namespace mccl::device {

/// Serves one call at a time. Only begin() may block. Threads may use it in turn, but not
/// concurrently.
class Passage {
 public:
  virtual ~Passage() = default;

  /// The copies of one call. Empty copies are omitted.
  struct Trip {
    void* stream;  ///< Stream of the caller, which owns the data.
    const void* from;
    std::byte* staged_input;
    std::size_t input_bytes;
    void* to;
    const std::byte* staged_output;
    std::size_t output_bytes;
    /// Bytes copied at a time, so that host and device work concurrently; 0 for all bytes in one
    /// copy.
    std::size_t piece = 0;
    void* from_allocation = nullptr;  ///< Same as Buffer::allocation.
    void* to_allocation = nullptr;
  };
  virtual void begin(const Trip& trip) = 0;

  /// Number of bytes of the input that have arrived on the host, from its beginning. Throws Error
  /// if no more will arrive; so does ended().
  virtual std::size_t arrived() = 0;
  /// Allows the first `bytes` of the output, in whole pieces, to be copied to the device.
  virtual void release(std::size_t bytes) = 0;
  /// Must be called when the host has finished its part of the call. The rest of the output is then
  /// copied to the device. If the call has failed, the output has no use and need not be copied.
  virtual void finish(bool failed) = 0;
  /// True if the device has finished its part of the call.
  virtual bool ended() = 0;

  /// True if lead() can make streams wait for the end of the call.
  virtual bool leads() const = 0;
  /// Makes later work of `stream` wait for the end of the call.
  virtual void lead(void* stream) = 0;
};

/// A passage through a queue that waits for the host. Device and host report their progress to each
/// other in words of pinned memory.
class QueuePassage final : public Passage {
 public:
  /// `words`: three words of pinned memory on a cache line of their own.
  QueuePassage(std::unique_ptr<Queue> queue, Word* words)
      : queue_(std::move(queue)), words_(words) {}

  /// Enqueues the whole call now, so that no driver call is needed later. A driver call while
  /// the device waits for the host could block on the device.
  void begin(const Trip& trip) override;

  std::size_t arrived() override;
  void release(std::size_t bytes) override;
  /// The output of a failed call is copied too, because the queue already holds the copy.
  void finish(bool /*failed*/) override { release(output_bytes_); }
  bool ended() override { return reached(&words_[kEnded], number_); }
  bool leads() const override { return true; }
  void lead(void* stream) override { queue_->lead(stream); }

 private:
  enum { kArrived, kReleased, kEnded };
  Word word_at(std::size_t bytes, std::size_t whole) const;

  const std::unique_ptr<Queue> queue_;
  Word* const words_;
  /// Value of the words before the call. During the call, they count its pieces.
  Word before_ = 0;
  Word number_ = 0;  ///< Value of the words at the end of the call.
  std::size_t piece_ = 1;
  std::size_t input_bytes_ = 0;
  std::size_t output_bytes_ = 0;
};

}  // namespace mccl::device
