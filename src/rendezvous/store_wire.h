// Requests to the TCP store and their answers: a header of fixed size, then the key and the value.
// Each connection has at most one request in flight.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/memory_store.h"
#include "rendezvous/wire.h"

namespace mccl::rendezvous {

/// Kind of a request. `leave` announces that the client is about to close its connections, and has
/// no answer.
enum class StoreCall : std::uint8_t { set, get, add, leave };
/// Maximum wait for a key, which may never be set.
inline constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 365);
/// kDeaths is the key of a counter of clients that have died. The n-th death is described under the
/// key kDeath followed by n: the rank, a space, and the name of its run of the job, if known.
inline constexpr const char* kDeaths = "mccl/deaths";
inline constexpr const char* kDeath = "mccl/death/";

/// The keys of one run of a job begin with kStartPrefix, followed by the run's name of
/// kStartLetters letters and a slash.
inline constexpr std::string_view kStartPrefix = "mccl/";
inline constexpr std::size_t kStartLetters = 32;

/// Returns the name of the run that a key belongs to; empty if it belongs to none.
inline std::string_view start_in(std::string_view key) {
  if (!key.starts_with(kStartPrefix)) return {};
  key.remove_prefix(kStartPrefix.size());
  return key.find('/') == kStartLetters ? key.substr(0, kStartLetters) : std::string_view();
}

enum class StoreAnswer : std::uint8_t { ok, missing, invalid };

inline constexpr std::size_t kRequestHeaderBytes = 1 + 4 + 4 + 8;
inline constexpr std::size_t kAnswerHeaderBytes = 1 + 4 + 8;
inline constexpr std::size_t kMaxRequestBytes = kRequestHeaderBytes + kMaxKeyBytes + kMaxValueBytes;

struct RequestHeader {
  StoreCall call = StoreCall::set;
  std::size_t key_bytes = 0;
  std::size_t value_bytes = 0;
  std::int64_t number = 0;  ///< The number to add, or the milliseconds to wait.

  std::size_t total_bytes() const { return kRequestHeaderBytes + key_bytes + value_bytes; }
};

struct AnswerHeader {
  StoreAnswer answer = StoreAnswer::ok;
  std::size_t value_bytes = 0;
  std::int64_t number = 0;
};

inline Bytes encode_request(StoreCall call, std::string_view key, std::string_view value,
                            std::int64_t number) {
  Bytes bytes;
  append(bytes, static_cast<std::uint8_t>(call));
  append(bytes, static_cast<std::uint32_t>(key.size()));
  append(bytes, static_cast<std::uint32_t>(value.size()));
  append(bytes, static_cast<std::uint64_t>(number));
  append(bytes, bytes_of(key));
  append(bytes, bytes_of(value));
  return bytes;
}

inline Bytes encode_answer(StoreAnswer answer, std::string_view value, std::int64_t number) {
  Bytes bytes;
  append(bytes, static_cast<std::uint8_t>(answer));
  append(bytes, static_cast<std::uint32_t>(value.size()));
  append(bytes, static_cast<std::uint64_t>(number));
  append(bytes, bytes_of(value));
  return bytes;
}

/// Decodes kRequestHeaderBytes bytes. Returns empty for a header that no correct client sends.
inline std::optional<RequestHeader> decode_request(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  RequestHeader header;
  const auto call = reader.number<std::uint8_t>();
  header.call = static_cast<StoreCall>(call);
  header.key_bytes = reader.number<std::uint32_t>();
  header.value_bytes = reader.number<std::uint32_t>();
  header.number = static_cast<std::int64_t>(reader.number<std::uint64_t>());
  if (call > static_cast<std::uint8_t>(StoreCall::leave) || header.key_bytes > kMaxKeyBytes ||
      header.value_bytes > kMaxValueBytes) {
    return {};
  }
  return header;
}

/// Decodes kAnswerHeaderBytes bytes. Returns empty for a header that no correct server sends.
inline std::optional<AnswerHeader> decode_answer(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  AnswerHeader header;
  const auto answer = reader.number<std::uint8_t>();
  header.answer = static_cast<StoreAnswer>(answer);
  header.value_bytes = reader.number<std::uint32_t>();
  header.number = static_cast<std::int64_t>(reader.number<std::uint64_t>());
  if (answer > static_cast<std::uint8_t>(StoreAnswer::invalid) ||
      header.value_bytes > kMaxValueBytes) {
    return {};
  }
  return header;
}

}  // namespace mccl::rendezvous
