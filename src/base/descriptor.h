// Descriptors of files and sockets. Keeps descriptors 0, 1 and 2 free of the library's files and
// sockets. A program may close standard output and still write to it; the text must not reach a
// file or socket of the library.
#pragma once

#include <string_view>
#include <utility>

#include "base/clock.h"

namespace mccl {

/// Every owner of a descriptor must pass a new descriptor through this function. Returns a
/// descriptor of 3 or above unchanged. Closes 0, 1 or 2, and returns a copy that is 3 or above and
/// close-on-exec. Returns -1 and sets errno if the process has reached its limit of descriptors.
/// Returns a negative descriptor unchanged, and keeps errno.
int own_descriptor(int descriptor) noexcept;

/// Owns a descriptor, which the destructor closes.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) noexcept : value_(own_descriptor(value)) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : value_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  explicit operator bool() const { return value_ >= 0; }
  int get() const { return value_; }
  int release() noexcept { return std::exchange(value_, -1); }
  void close() noexcept;

 private:
  int value_ = -1;
};

/// Blocks until the descriptor has one of the events of poll(2). Returns false if the deadline
/// passed first.
bool wait_for(int descriptor, short events, Clock::time_point deadline);

/// Writes the text to a blocking descriptor. Returns false, and sets errno, if the system refuses.
bool write_all(const Descriptor& file, std::string_view text);

}  // namespace mccl
