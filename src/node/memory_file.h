// Memory that processes can share: a file without a name, passed on by its descriptor. It is freed
// when the last process that holds it ends, however that happens.
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

  /// Maps `bytes` from `offset` of the file, both multiples of page_bytes(). Pages are mapped when
  /// first touched, which delays a call less than mapping it all in one go. Throws Error.
  static Mapping of(const Descriptor& file, std::size_t offset, std::size_t bytes);
  /// Maps the same bytes twice in a row, so that an access past the end continues at the beginning.
  static Mapping twice(const Descriptor& file, std::size_t offset, std::size_t bytes);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  Mapping(std::byte* data, std::size_t size) : data_(data), size_(size) {}

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Makes a file of this size, without allocating memory for it yet. The file can never shrink, so
/// accesses to a mapping of it never fault. Throws Error.
Descriptor make_memory_file(std::size_t bytes);

/// Allocates the memory for a part of the file now, so that no later access can fail. Returns false
/// if there is not enough.
bool reserve_memory(const Descriptor& file, std::size_t offset, std::size_t bytes);

/// Returns the memory for a part of the file to the system, if the system supports that. No process
/// may access it meanwhile. Returns false if the system refused.
bool discard_memory(const Descriptor& file, std::size_t offset, std::size_t bytes) noexcept;

/// The size of a file received from a peer. Throws Error if the file was not made by
/// make_memory_file().
std::size_t size_of_memory_file(const Descriptor& file);

}  // namespace mccl::node
