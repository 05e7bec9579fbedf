// What is kept for the calls of one device: pinned memory and passages. To make either takes long,
// and may wait for all that the device has to do; so what a call has used is kept for the next.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"

namespace mccl::device {

class Depot;

/// Pinned memory of a call, for the next one when it is let go of.
class Block {
 public:
  Block() = default;
  Block(std::shared_ptr<Depot> depot, std::byte* data, std::size_t kind)
      : depot_(std::move(depot)), data_(data), kind_(kind) {}
  Block(Block&& other) noexcept { *this = std::move(other); }
  Block& operator=(Block&& other) noexcept;
  ~Block();

  std::byte* data() const { return data_; }

 private:
  std::shared_ptr<Depot> depot_;
  std::byte* data_ = nullptr;
  std::size_t kind_ = 0;
};

/// The way of one call between a device's memory and the host's: a queue, and the words by which
/// device and host tell each other how far they are. One call at a time.
class Passage {
 public:
  /// `words`: three words of pinned memory, on a cache line of their own.
  Passage(std::unique_ptr<Queue> queue, Word* words) : queue_(std::move(queue)), words_(words) {}

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
  };
  /// Enqueues all of it, so that nobody needs to ask the device for anything afterwards: who does
  /// while the device waits for the host may be made to wait for the device.
  void begin(const Trip& trip);

  /// Bytes of the input that have come to the host, from its beginning on.
  std::size_t arrived() const;
  /// The first `bytes` of the output may go to the device: whole pieces of it.
  void release(std::size_t bytes);
  /// The host's side is over.
  void release() { release(output_bytes_); }
  /// Whether the device's side is over.
  bool ended() const { return reached(&words_[kEnded], number_); }
  /// What `stream` is given from now on runs after the call.
  void lead(void* stream) { queue_->lead(stream); }

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

/// Thread-safe. Lives as long as what it has given.
class Depot : public std::enable_shared_from_this<Depot> {
 public:
  explicit Depot(std::shared_ptr<Accelerator> accelerator);
  ~Depot();

  Accelerator& accelerator() const { return *accelerator_; }
  std::shared_ptr<Accelerator> shared_accelerator() const { return accelerator_; }

  Block block(std::size_t bytes);
  std::unique_ptr<Passage> passage();
  /// Takes back a passage that has ended.
  void take_back(std::unique_ptr<Passage> passage);

 private:
  friend class Block;
  static constexpr std::size_t kKinds = 48;  ///< Blocks are of powers of two.
  void take_back(std::byte* data, std::size_t kind);

  const std::shared_ptr<Accelerator> accelerator_;
  std::mutex mutex_;
  std::array<std::vector<std::byte*>, kKinds> free_;  // guarded by mutex_
  std::vector<std::unique_ptr<Passage>> passages_;    // guarded by mutex_
  std::vector<std::byte*> pages_of_words_;            // guarded by mutex_
  std::size_t words_left_ = 0;                        // guarded by mutex_
};

}  // namespace mccl::device
