// Pipes between processes, whose ends close themselves.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <utility>

#include "base/own_descriptor.h"

namespace mccl::cli::bench {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(own_descriptor(value)) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return value_; }
  void close() noexcept;

 private:
  int value_ = -1;
};

struct Pipe {
  Descriptor reader;
  Descriptor writer;
};

/// Closed by exec. Throws Error.
Pipe make_pipe();

/// As read(), but a signal does not end it.
ssize_t read_some(int descriptor, void* to, std::size_t limit);

}  // namespace mccl::cli::bench
