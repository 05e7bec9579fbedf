// Memory for secrets.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>

#include "mccl/export.h"

namespace mccl {

/// The bytes of a secret, such as a job key. On Linux, their memory is left out of core dumps
/// (MADV_DONTDUMP). On every system it is erased when the last copy ends. Immutable: copies share
/// the memory, and assignment replaces it. Thread-safe like std::shared_ptr.
class MCCL_API SecretBytes {
 public:
  SecretBytes() = default;
  /// Copies `bytes`, anything that converts to std::string_view. The caller should erase its own
  /// copy. Throws std::bad_alloc.
  template <std::convertible_to<std::string_view> Bytes>
  SecretBytes(const Bytes& bytes) : SecretBytes(copy_of(bytes)) {}

  std::string_view view() const { return {bytes_.get(), size_}; }
  operator std::string_view() const { return view(); }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  friend bool operator==(const SecretBytes& a, const SecretBytes& b) {
    return a.view() == b.view();
  }
  template <std::convertible_to<std::string_view> Bytes>
  friend bool operator==(const SecretBytes& a, const Bytes& b) {
    return a.view() == std::string_view(b);
  }
  /// Writes no secret: for the messages of failed comparisons in tests.
  friend std::ostream& operator<<(std::ostream& stream, const SecretBytes& secret) {
    return stream << (secret.empty() ? "(not set)" : "(set)");
  }

 private:
  static SecretBytes copy_of(std::string_view bytes);

  std::shared_ptr<const char> bytes_;
  std::size_t size_ = 0;
};

}  // namespace mccl
