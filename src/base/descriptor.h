// Descriptors 0, 1 and 2 belong to the program, also while they are closed: what anybody prints
// goes to them.
#pragma once

#include <utility>

namespace mccl {

/// Every owner of a descriptor passes a new one through this function. Returns the descriptor, or,
/// in place of one below 3, a copy that is 3 or above and that exec closes. Returns -1 and sets
/// errno where the process may have no more; a negative descriptor stays as it is, with errno.
int own_descriptor(int descriptor) noexcept;

/// Owns a descriptor and closes it.
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

}  // namespace mccl
