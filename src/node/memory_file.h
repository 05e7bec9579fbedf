// Memory that processes can share: a file without a name, passed on by its descriptor, so that it
// is gone with the last process that holds it, however that ends.
#pragma once

#include <cstddef>
#include <span>

#include "base/descriptor.h"

namespace mccl::node {

/// Mapped memory; unmaps itself.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  /// `bytes` from `offset` of the file, both multiples of page_bytes(); a page of it is there when
  /// it is first touched, which costs a call less than all of them at once. Throws Error.
  static Mapping of(const Descriptor& file, std::size_t offset, std::size_t bytes);
  /// The same twice, one after the other, so that what runs past the end goes on at the beginning.
  static Mapping twice(const Descriptor& file, std::size_t offset, std::size_t bytes);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  Mapping(std::byte* data, std::size_t size) : data_(data), size_(size) {}

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A new file of that size, of which nothing takes memory yet. It never shrinks, so that nobody who
/// maps it can be hurt. Throws Error.
Descriptor make_memory_file(std::size_t bytes);

/// Takes the memory for a part of the file now, so that no later access can fail for want of it.
/// False when there is not enough.
bool reserve_memory(const Descriptor& file, std::size_t offset, std::size_t bytes);

/// Gives the memory of a part of the file back to the system, where that can be done in parts.
/// Nobody may look at it meanwhile. False when the system refused.
bool discard_memory(const Descriptor& file, std::size_t offset, std::size_t bytes) noexcept;

/// The size of a file that a peer gave. Throws Error when it is not one of make_memory_file.
std::size_t size_of_memory_file(const Descriptor& file);

}  // namespace mccl::node
