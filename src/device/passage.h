// The way of one call between a device's memory and the host's.
#pragma once

#include <cstddef>
#include <memory>

#include "device/device.h"

namespace mccl::device {

/// One call at a time. Not thread-safe. Every call but begin() returns at once.
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
    void* from_allocation = nullptr;  ///< As Buffer::allocation.
    void* to_allocation = nullptr;
  };
  virtual void begin(const Trip& trip) = 0;

  /// Whether the input has come to the host. Throws Error where it never will, as ended() does.
  virtual bool arrived() = 0;
  /// The host's side is over. What it has written may go to the device; of a call that has failed
  /// that is of no use.
  virtual void release(bool failed) = 0;
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

  bool arrived() override { return !has_input_ || reached(&words_[kArrived], number_); }
  void release(bool failed) override;
  bool ended() override { return reached(&words_[kEnded], number_); }
  bool leads() const override { return true; }
  void lead(void* stream) override { queue_->lead(stream); }

 private:
  enum { kArrived, kReleased, kEnded };

  const std::unique_ptr<Queue> queue_;
  Word* const words_;
  Word number_ = 0;  ///< Of the call.
  bool has_input_ = false;
};

}  // namespace mccl::device
