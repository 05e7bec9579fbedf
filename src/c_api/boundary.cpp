#include "c_api/boundary.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <iterator>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "c_api/handles.h"
#include "mccl/error.h"

namespace mccl::c_api {
namespace {

/// The error text if memory has run out: a literal, which needs no allocation.
constexpr const char* kOutOfMemory = "out of memory";

thread_local std::string last_error;
thread_local const char* last_error_shown = "";  // points into last_error or to a literal

}  // namespace

ErrorText text_of(const std::exception_ptr& error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const InvalidArgument& e) {
    return {MCCL_ERROR_INVALID_ARGUMENT, e.what()};
  } catch (const TimeoutError& e) {
    return {MCCL_ERROR_TIMEOUT, e.what()};
  } catch (const PeerError& e) {
    return {MCCL_ERROR_PEER, e.what()};
  } catch (const MismatchError& e) {
    return {MCCL_ERROR_MISMATCH, e.what()};
  } catch (const AbortedError& e) {
    return {MCCL_ERROR_ABORTED, e.what()};
  } catch (const CorruptionError& e) {
    return {MCCL_ERROR_CORRUPTION, e.what()};
  } catch (const Error& e) {
    return {MCCL_ERROR_OTHER, e.what()};
  } catch (const NoRoom& e) {
    return {MCCL_ERROR_NO_ROOM, e.what()};
  } catch (const std::bad_alloc&) {
    return {MCCL_ERROR_OUT_OF_MEMORY, kOutOfMemory};
  } catch (const std::system_error& e) {
    return {MCCL_ERROR_OTHER, e.what()};
  } catch (const std::exception& e) {
    return {MCCL_ERROR_INTERNAL,
            fmt::format("internal error of libmccl; please report it: {}", e.what())};
  } catch (...) {
    return {MCCL_ERROR_INTERNAL,
            "internal error of libmccl; please report it: an unknown exception"};
  }
}

mccl_status keep_error() noexcept {
  try {
    ErrorText failure = text_of(std::current_exception());
    last_error = std::move(failure.text);
    last_error_shown = last_error.c_str();
    return failure.status;
  } catch (...) {
    last_error_shown = kOutOfMemory;
    return MCCL_ERROR_OUT_OF_MEMORY;
  }
}

void require(const char* call, const char* argument, const void* pointer) {
  if (pointer) return;
  throw InvalidArgument(fmt::format("{}: {} is NULL; pass a valid pointer", call, argument));
}

const char* text_of(const char* call, const char* argument, const char* text) {
  require(call, argument, text);
  return text;
}

void copy_text(const char* call, std::string_view from, char* text, std::size_t capacity,
               std::size_t* length) {
  if (length) *length = from.size();
  if (capacity == 0) {
    require(call, "length (required if capacity is 0)", length);
    return;
  }
  require(call, "text", text);
  text[0] = '\0';
  if (capacity <= from.size()) {
    throw NoRoom(fmt::format("{}: the text and its NUL need {} bytes, but the buffer has {}", call,
                             from.size() + 1, capacity));
  }
  std::memcpy(text, from.data(), from.size());
  text[from.size()] = '\0';
}

void copy_bytes(const char* call, std::string_view from, void* value, std::size_t capacity,
                std::size_t* bytes) {
  if (bytes) *bytes = from.size();
  if (capacity == 0) {
    if (!from.empty()) require(call, "bytes (required if capacity is 0)", bytes);
    return;
  }
  require(call, "value", value);
  if (capacity < from.size()) {
    throw NoRoom(fmt::format("{}: the value has {} bytes, but the buffer has {}", call, from.size(),
                             capacity));
  }
  std::memcpy(value, from.data(), from.size());
}

}  // namespace mccl::c_api

const char* mccl_last_error(void) noexcept { return mccl::c_api::last_error_shown; }

namespace mccl::c_api {
namespace {

std::string_view name_of(HandleKind kind) {
  constexpr std::string_view kNames[] = {"a mccl_config", "a mccl_store", "a mccl_context",
                                         "a mccl_group",  "a mccl_work",  "a mccl_memory"};
  const auto place =
      static_cast<std::uint32_t>(kind) - static_cast<std::uint32_t>(HandleKind::config);
  return place < std::size(kNames) ? kNames[place] : "no valid handle (perhaps it was destroyed)";
}

}  // namespace

void check_kind(const char* call, const char* argument, HandleKind found, HandleKind expected) {
  if (found == expected) return;
  throw InvalidArgument(
      fmt::format("{}: {} is {}, expected {}", call, argument, name_of(found), name_of(expected)));
}

}  // namespace mccl::c_api
