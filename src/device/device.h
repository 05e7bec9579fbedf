// Interface of devices with memory of their own, such as GPUs. A device works asynchronously: the
// host enqueues work, and the device reports its progress in words of pinned memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "mccl/buffer.h"

namespace mccl::device {

/// A number in memory that host and device share. Queue::write() sets it after the earlier
/// operations of the queue. Values wrap around, so they must be compared with reached().
using Word = std::uint32_t;

/// True if `word` has reached `value` or passed it.
inline bool reached(const Word* word, Word value) {
  return static_cast<std::int32_t>(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) >= 0;
}

/// A queue of operations that run in order. Every function enqueues and returns immediately. A
/// stream is a queue of the caller, passed as the driver's handle (a CUstream); null means the
/// device's default stream.
class Queue {
 public:
  virtual ~Queue() = default;

  /// Makes later operations wait for all work that was submitted to `stream` so far.
  virtual void follow(void* stream) = 0;
  /// Copies between device memory and pinned memory.
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_to_device(void* to, const void* from, std::size_t bytes) = 0;
  virtual void write(Word* word, Word value) = 0;
  /// Makes later operations wait until the host has set `word` to `value` or to a later value.
  virtual void await(const Word* word, Word value) = 0;
  /// Records this position of the queue for lead().
  virtual void mark() = 0;
  /// Makes later work of `stream` wait for the operations before the mark.
  virtual void lead(void* stream) = 0;
  /// The queue's stream handle, with which other functions can enqueue work on the queue.
  virtual void* handle() = 0;
};

/// Moves the data of a call between device memory and host memory. Serves one call at a time. Only
/// begin() may block. Several threads may use a bounce, but not at the same time.
class HostBounce {
 public:
  virtual ~HostBounce() = default;

  /// The copies of one call. A copy of 0 bytes is omitted.
  struct Trip {
    void* stream;             ///< Stream of the caller; the copies wait for its earlier work.
    const void* from;         ///< The input, in device memory.
    std::byte* staged_input;  ///< Pinned memory that receives the input.
    std::size_t input_bytes;
    void* to;                        ///< The output, in device memory.
    const std::byte* staged_output;  ///< Pinned memory that holds the output.
    std::size_t output_bytes;
    /// Size in bytes of the pieces in which the data are copied, so that host and device work
    /// concurrently; 0 for a single copy of all bytes.
    std::size_t piece = 0;
    void* from_allocation = nullptr;  ///< Buffer::allocation of the input.
    void* to_allocation = nullptr;    ///< Buffer::allocation of the output.
  };
  virtual void begin(const Trip& trip) = 0;

  /// Number of bytes at the beginning of the input that have arrived on the host. Like ended(),
  /// throws Error if the device has failed, because no more bytes can then arrive.
  virtual std::size_t arrived() = 0;
  /// Allows the first `bytes` of the output to be copied to the device. A bounce may postpone the
  /// copy of an incomplete piece until finish().
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

/// One device. Thread-safe.
class Accelerator {
 public:
  virtual ~Accelerator() = default;

  /// Name for messages, such as "cuda:0 (NVIDIA H200)".
  virtual const std::string& name() const = 0;
  /// Bus address, which distinguishes the devices of a host; the same in all processes.
  virtual std::string bus() const = 0;
  virtual std::unique_ptr<Queue> make_queue() = 0;
  /// Makes a HostBounce if this device has an implementation of its own; otherwise returns null.
  /// The caller then builds a bounce on a queue from make_queue(), which must be able to wait for
  /// the host.
  virtual std::unique_ptr<HostBounce> make_bounce() { return nullptr; }
  /// Allocates device memory, which the last owner frees. Throws Error on failure.
  virtual std::shared_ptr<void> make_memory(std::size_t bytes) = 0;
  /// Blocks until the device has finished all work that was submitted to it.
  virtual void finish() = 0;
  /// Smallest useful HostBounce::Trip::piece in bytes, a multiple of 64. Copying a smaller piece
  /// takes less time than notifying the host that the copy has ended.
  virtual std::size_t least_piece() const { return std::size_t{256} << 10; }
  /// Allocates host memory that the device can read and write. Throws Error on failure.
  virtual std::byte* allocate_pinned(std::size_t bytes) = 0;
  virtual void free_pinned(std::byte* memory) noexcept = 0;
  /// Returns the reason why `memory` does not belong to this device; empty if it does.
  virtual std::string objection(const ConstBuffer& memory) const = 0;
  /// True if work submitted to `stream` is recorded into a graph instead of run.
  virtual bool is_capturing(void* stream) const = 0;
};

/// Name of the device in messages, such as "cuda:1".
std::string name_of(Device device);

}  // namespace mccl::device
