// Memory files: unnamed files that hold memory which several processes map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/descriptor.h"

namespace mccl::node {

/// Mapped memory, which the destructor unmaps.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  /// Maps `bytes` from `offset` of the file, both multiples of page_bytes(). The system maps each
  /// page at its first access, which delays a call less than mapping all pages at once. Throws
  /// Error if the system refuses.
  static Mapping of(const Descriptor& file, std::size_t offset, std::size_t bytes);
  /// Maps a part of the file without access to it. Core dumps leave it out.
  static Mapping closed(const Descriptor& file, std::size_t offset, std::size_t bytes);
  /// Maps the same bytes at two consecutive places, so that an access past the end continues at the
  /// beginning.
  static Mapping twice(const Descriptor& file, std::size_t offset, std::size_t bytes);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  Mapping(std::byte* data, std::size_t size) : data_(data), size_(size) {}

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A mapping of a part of a file most of which has no pages. Only what open() has opened can be
/// accessed, because mlockall(2) would allocate the pages of all that can. Not thread-safe.
class SparseMapping {
 public:
  enum class Access : std::uint8_t { read, read_and_write };

  SparseMapping() = default;
  /// Throws Error if this process has no address space left for the mapping.
  SparseMapping(const Descriptor& file, std::size_t offset, std::size_t bytes, Access access)
      : mapping_(Mapping::closed(file, offset, bytes)),
        access_(access),
        is_open_((bytes + kUnit - 1) / kUnit) {}

  std::byte* data() const { return mapping_.data(); }
  std::size_t size() const { return mapping_.size(); }
  /// Lets this process access the bytes [begin, begin + bytes), which must lie in the mapping.
  /// Returns false if the system refuses.
  bool open(std::size_t begin, std::size_t bytes);

 private:
  static constexpr std::size_t kUnit = std::size_t{2} << 20;

  Mapping mapping_;
  Access access_ = Access::read;
  std::vector<bool> is_open_;  // for each kUnit bytes
};

/// Makes a file of `bytes` bytes, without allocating memory for it yet. The file can never shrink,
/// because an access to mapped memory past the end of a file raises SIGBUS. Throws Error if the
/// file cannot be made.
Descriptor make_memory_file(std::size_t bytes);

/// Returns the size in bytes of a file received from a peer. On Linux, throws Error if the file can
/// shrink; make_memory_file() makes files that cannot.
std::size_t size_of_memory_file(const Descriptor& file);

/// Largest size in bytes of the files that this process may make.
std::size_t largest_file();

/// True if this process may not use all address space that the system offers (RLIMIT_AS).
bool has_limited_address_space();

enum class MemoryChange : std::uint8_t {
  reserve,  ///< Allocates the memory of the part now, so that no later access can fail.
  discard,  ///< Returns the memory of the part to the system.
};

/// Changes a part of a memory file; no process may access the part during the call. Returns false
/// if the system refused. Does nothing on systems other than Linux, which allocate pages on first
/// use and keep them.
bool change_memory(const Descriptor& file, MemoryChange change, std::size_t offset,
                   std::size_t bytes) noexcept;

/// `bytes` rounded up to whole pages.
std::size_t whole_pages(std::size_t bytes);

/// Throws an Error that says that shared memory cannot do `what`, with the reason in errno.
[[noreturn]] void fail_to(const char* what);

}  // namespace mccl::node
