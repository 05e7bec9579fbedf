// What memory that is not the host's can do. A device works by itself: what it is asked to do goes
// into a queue, and the host learns from words in pinned memory how far that has come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "mccl/buffer.h"

namespace mccl::device {

/// A word that host and device both see. The device writes it in the order of its queue; compare
/// with reached(), as values go around.
using Word = std::uint32_t;

/// Whether `word` has come to `value` or past it.
inline bool reached(const Word* word, Word value) {
  return static_cast<std::int32_t>(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) >= 0;
}

/// Things done one after another. Every call of it enqueues and returns. A stream is a queue of the
/// caller's, by the handle that its maker knows (a CUstream); null is the device's default.
class Queue {
 public:
  virtual ~Queue() = default;

  /// What comes next waits for all that `stream` has been given until now.
  virtual void follow(void* stream) = 0;
  /// Between the device's memory and pinned memory.
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_to_device(void* to, const void* from, std::size_t bytes) = 0;
  virtual void write(Word* word, Word value) = 0;
  /// What comes next waits until the host has brought `word` to `value`.
  virtual void await(const Word* word, Word value) = 0;
  /// Remembers this place of the queue for lead().
  virtual void mark() = 0;
  /// What `stream` is given from now on waits for what lies before the mark.
  virtual void lead(void* stream) = 0;
  /// As a stream, for what else can be given to one.
  virtual void* handle() = 0;
};

class Passage;

/// One device. Thread-safe.
class Accelerator {
 public:
  virtual ~Accelerator() = default;

  /// For messages, such as "cuda:0 (NVIDIA H200)".
  virtual const std::string& name() const = 0;
  /// Where it is plugged in: tells the devices of a host apart, alike in all processes.
  virtual std::string bus() const = 0;
  virtual std::unique_ptr<Queue> make_queue() = 0;
  /// The device's own way to carry the data of calls; null where that is by a queue that waits for
  /// the host.
  virtual std::unique_ptr<Passage> make_passage();
  /// Of the device. Throws Error.
  virtual std::shared_ptr<void> make_memory(std::size_t bytes) = 0;
  /// Waits for all that the device has been given.
  virtual void finish() = 0;
  /// What is worth a copy of its own: less takes no longer than to tell the host of it. A multiple
  /// of 64.
  virtual std::size_t least_piece() const { return std::size_t{256} << 10; }
  /// Host memory that the device reads and writes by itself. Throws Error.
  virtual std::byte* allocate_pinned(std::size_t bytes) = 0;
  virtual void free_pinned(std::byte* memory) noexcept = 0;
  /// Why memory is not this device's: empty where it is.
  virtual std::string objection(const ConstBuffer& memory) const = 0;
  /// Whether what `stream` is given is being recorded, to be run later, instead of done.
  virtual bool is_capturing(void* stream) const = 0;
};

/// "cuda:1".
std::string name_of(Device device);

}  // namespace mccl::device
