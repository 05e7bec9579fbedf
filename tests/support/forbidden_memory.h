// Memory that represents device memory: host code that accesses it crashes.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>

namespace mccl::testing {

/// Memory mapped at two addresses. Any access through outside() crashes; inside() allows reads and
/// writes.
class ForbiddenMemory {
 public:
  explicit ForbiddenMemory(std::size_t bytes) : bytes_(bytes == 0 ? 1 : bytes) {
    const int file = ::memfd_create("device", 0);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes_)) != 0) throw std::bad_alloc();
    outside_ = map(PROT_NONE, file);
    inside_ = map(PROT_READ | PROT_WRITE, file);
    ::close(file);
  }
  ~ForbiddenMemory() {
    ::munmap(outside_, bytes_);
    ::munmap(inside_, bytes_);
  }
  ForbiddenMemory(const ForbiddenMemory&) = delete;
  ForbiddenMemory& operator=(const ForbiddenMemory&) = delete;

  std::byte* outside() const { return outside_; }
  std::byte* inside() const { return inside_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* map(int rights, int file) const {
    void* const memory = ::mmap(nullptr, bytes_, rights, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::byte*>(memory);
  }

  std::size_t bytes_;
  std::byte* outside_;
  std::byte* inside_;
};

}  // namespace mccl::testing
