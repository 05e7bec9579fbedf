// The in-memory table of keys and values that every store uses, and the messages of the TCP store:
// a header of fixed size, then the key and the value. Each connection has at most one request in
// flight.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "mccl/store.h"
#include "rendezvous/connections/names.h"
#include "rendezvous/connections/wire.h"

namespace mccl::rendezvous {

inline constexpr std::size_t kMaxKeyBytes = std::size_t{1} << 10;
inline constexpr std::size_t kMaxValueBytes = std::size_t{1} << 20;
/// Maximum size of a table: 16 KiB for each of 4096 ranks. The size of an entry is that of its key
/// and value, plus kEntryBytes.
inline constexpr std::size_t kMaxTableBytes = std::size_t{64} << 20;
inline constexpr std::size_t kEntryBytes = 128;
/// A key that contains this text may be written only by the process that serves the store.
inline constexpr std::string_view kServersOwn = "mccl/rank 0 only/";

/// check_key() and check_value() throw InvalidArgument if the key or the value is longer than
/// stores accept.
void check_key(std::string_view key);
void check_value(std::string_view key, std::string_view value);

/// Throws the TimeoutError of a get() whose key was not set within `timeout`.
[[noreturn]] void throw_missing_key(const std::string& key, milliseconds timeout);

/// A store in memory. Counters are stored as decimal text, so that get() can also read them.
class MemoryStore final : public Store {
 public:
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;

  /// Returns the value without waiting; empty if the key is not set.
  std::optional<std::string> find(const std::string& key) const;

 private:
  /// Must be called with the mutex held. Throws InvalidArgument if the table is full.
  void put(const std::string& key, std::string value);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::size_t bytes_ = 0;  ///< Size of values_ in bytes, including kEntryBytes per entry.
};

enum class StoreKind : std::uint8_t {
  // Requests:
  set,
  get,
  add,
  leave,  ///< The client is about to close its connections. The server sends no answer.
  // Answers:
  ok,
  missing,
  invalid,
};

/// Maximum time for which a client may wait for a key: one year.
inline constexpr milliseconds kLongestWait = std::chrono::hours(24 * 365);
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

inline constexpr std::size_t kStoreHeaderBytes = 1 + 4 + 4 + 8;

struct StoreHeader {
  StoreKind kind = StoreKind::set;
  std::size_t key_bytes = 0;  ///< Length of the key in bytes; 0 in an answer, which has no key.
  std::size_t value_bytes = 0;
  /// In `add`: the number to add. In `get`: the maximum wait in milliseconds. In an answer to
  /// `add`: the sum.
  std::int64_t number = 0;

  bool is_answer() const { return kind >= StoreKind::ok; }
  std::size_t total_bytes() const { return kStoreHeaderBytes + key_bytes + value_bytes; }
};

inline Bytes encode(StoreKind kind, std::string_view key, std::string_view value,
                    std::int64_t number) {
  Bytes bytes;
  append(bytes, static_cast<std::uint8_t>(kind));
  append(bytes, static_cast<std::uint32_t>(key.size()));
  append(bytes, static_cast<std::uint32_t>(value.size()));
  append(bytes, static_cast<std::uint64_t>(number));
  append(bytes, bytes_of(key));
  append(bytes, bytes_of(value));
  return bytes;
}

/// Decodes the header at the front of a message, which must have kStoreHeaderBytes. Returns empty
/// for a header that no correct client or server sends.
inline std::optional<StoreHeader> decode_store_header(std::span<const std::byte> message) {
  WireReader reader(message);
  StoreHeader header;
  header.kind = static_cast<StoreKind>(reader.number<std::uint8_t>());
  header.key_bytes = reader.number<std::uint32_t>();
  header.value_bytes = reader.number<std::uint32_t>();
  header.number = static_cast<std::int64_t>(reader.number<std::uint64_t>());
  const std::size_t most_key_bytes = header.is_answer() ? 0 : kMaxKeyBytes;
  if (header.kind > StoreKind::invalid || header.key_bytes > most_key_bytes ||
      header.value_bytes > kMaxValueBytes) {
    return {};
  }
  return header;
}

}  // namespace mccl::rendezvous
