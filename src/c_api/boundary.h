// The boundary between C++ and C: nothing thrown passes it, and what comes from outside is checked
// before it is believed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "mccl/c.h"

namespace mccl::c_api {

/// The status that belongs to an error, and what it says.
struct Told {
  mccl_status status = MCCL_OK;
  std::string text;
};

/// Null is success. Throws bad_alloc when there is no memory for the text.
Told told_of(const std::exception_ptr& error);

/// Keeps the error that is being handled as this thread's last, and returns its status. For catch
/// blocks.
mccl_status keep_error() noexcept;

/// Runs the body of a C function. Everything that it throws becomes a status.
template <typename Body>
mccl_status guarded(Body&& body) noexcept {
  try {
    body();
    return MCCL_OK;
  } catch (...) {
    return keep_error();
  }
}

/// The text of the caller, who must not pass null.
const char* text_of(const char* call, const char* argument, const char* text);

/// Throws InvalidArgument that names the argument when it is null.
void require(const char* call, const char* argument, const void* pointer);

/// Refuses null, and makes what lies there null, so that a failure leaves nothing to be used.
template <typename Handle>
void clear(const char* call, const char* argument, Handle** out) {
  require(call, argument, out);
  *out = nullptr;
}

/// Copies text out, as "Text out" of mccl/c.h says; throws NoRoom.
void copy_text(const char* call, std::string_view from, char* text, std::size_t capacity,
               std::size_t* length);
/// The same of bytes, without a NUL.
void copy_bytes(const char* call, std::string_view from, void* value, std::size_t capacity,
                std::size_t* bytes);

/// What the caller gave no room for.
class NoRoom : public std::exception {
 public:
  explicit NoRoom(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

}  // namespace mccl::c_api
