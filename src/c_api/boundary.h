// The boundary between C++ and C: no exception crosses it, and all values from outside are checked
// before they are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "mccl/c.h"

namespace mccl::c_api {

/// The status and the message with which the C interface reports an exception.
struct ErrorText {
  mccl_status status = MCCL_OK;
  std::string text;
};

/// Returns the status and text of `error`; MCCL_OK if it is null. Throws bad_alloc if there is no
/// memory for the text.
ErrorText text_of(const std::exception_ptr& error);

/// Stores the exception that is being handled as this thread's last error, and returns its status.
/// Must be called in a catch block.
mccl_status keep_error() noexcept;

/// Runs the body of a C function, and turns every exception into a status.
template <typename Body>
mccl_status guarded(Body&& body) noexcept {
  try {
    body();
    return MCCL_OK;
  } catch (...) {
    return keep_error();
  }
}

/// Runs `body` and returns its value, or `otherwise` if it throws.
template <typename Value, typename Body>
Value value_or(Value otherwise, Body&& body) noexcept {
  guarded([&] { otherwise = body(); });
  return otherwise;
}

/// Returns `text`. Throws InvalidArgument if it is null; the message contains `argument`.
const char* text_of(const char* call, const char* argument, const char* text);

/// Throws InvalidArgument if the pointer is null; the message contains `argument`.
void require(const char* call, const char* argument, const void* pointer);

/// Throws InvalidArgument if `out` is null. Sets `*out` to null, so that a call that fails returns
/// no handle.
template <typename Handle>
void clear(const char* call, const char* argument, Handle** out) {
  require(call, argument, out);
  *out = nullptr;
}

/// Copies `from` to the caller's buffer `text`, as described under "Text out" in mccl/c.h. Throws
/// NoRoom if the buffer is too small.
void copy_text(const char* call, std::string_view from, char* text, std::size_t capacity,
               std::size_t* length);
/// Copies `from` to the caller's buffer `value` like copy_text(), but without a NUL.
void copy_bytes(const char* call, std::string_view from, void* value, std::size_t capacity,
                std::size_t* bytes);

/// Thrown if the caller's memory is too small for a value.
class NoRoom : public std::exception {
 public:
  explicit NoRoom(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

}  // namespace mccl::c_api
