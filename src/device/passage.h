// The way of one call between a device's memory and the host's.
#pragma once

#include <cstddef>
#include <memory>

#include "device/device.h"

namespace mccl::device {

/// One call at a time. No call but begin() waits for anything. Used by one thread after another.
class Passage {
 public:
  virtual ~Passage() = default;

  /// What a call has the device do. Copies of nothing are left out.
  struct Trip {
    void* stream;  ///< Of the caller, whose data it is.
    const void* from;
    std::byte* staged_input;
    std::size_t input_bytes;
    void* to;
    const std::byte* staged_output;
    std::size_t output_bytes;
    /// What goes at a time, so that host and device are at work at once; 0: all of it.
    std::size_t piece = 0;
    void* from_allocation = nullptr;  ///< As Buffer::allocation.
    void* to_allocation = nullptr;
  };
  virtual void begin(const Trip& trip) = 0;

  /// Bytes of the input that have come to the host, from its beginning on. Throws Error where no
  /// more will, as ended() does.
  virtual std::size_t arrived() = 0;
  /// The first `bytes` of the output may go to the device: whole pieces of it.
  virtual void release(std::size_t bytes) = 0;
  /// The host's side is over, and what it has written may go; of a call that has failed that is of
  /// no use.
  virtual void finish(bool failed) = 0;
  /// Whether the device's side is over.
  virtual bool ended() = 0;

  /// Whether streams can wait for the call's end, by lead().
  virtual bool leads() const = 0;
  /// What `stream` is given from now on runs after the call.
  virtual void lead(void* stream) = 0;
};

/// By a queue that waits for the host, and words by which device and host tell each other how far
/// they are.
class QueuePassage final : public Passage {
 public:
  /// `words`: three words of pinned memory, on a cache line of their own.
  QueuePassage(std::unique_ptr<Queue> queue, Word* words)
      : queue_(std::move(queue)), words_(words) {}

  /// Enqueues all of it, so that nobody needs to ask the device for anything afterwards: who does
  /// while the device waits for the host may be made to wait for the device.
  void begin(const Trip& trip) override;

  std::size_t arrived() override;
  void release(std::size_t bytes) override;
  /// What has failed is copied too: the queue is about to.
  void finish(bool /*failed*/) override { release(output_bytes_); }
  bool ended() override { return reached(&words_[kEnded], number_); }
  bool leads() const override { return true; }
  void lead(void* stream) override { queue_->lead(stream); }

 private:
  enum { kArrived, kReleased, kEnded };
  Word word_at(std::size_t bytes, std::size_t whole) const;

  const std::unique_ptr<Queue> queue_;
  Word* const words_;
  Word before_ = 0;  ///< What the words had come to before the call: they count its pieces.
  Word number_ = 0;  ///< What they come to at its end.
  std::size_t piece_ = 1;
  std::size_t input_bytes_ = 0;
  std::size_t output_bytes_ = 0;
};

}  // namespace mccl::device
