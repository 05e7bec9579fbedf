// The in-memory table of keys and values that every store uses.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "mccl/store.h"

namespace mccl::rendezvous {

inline constexpr std::size_t kMaxKeyBytes = std::size_t{1} << 10;
inline constexpr std::size_t kMaxValueBytes = std::size_t{1} << 20;
/// Maximum size of a table: 16 KiB for each of 4096 ranks. An entry counts as its key and value
/// plus kEntryBytes.
inline constexpr std::size_t kMaxTableBytes = std::size_t{64} << 20;
inline constexpr std::size_t kEntryBytes = 128;
/// A key that contains this text may be written only by the process that serves the store.
inline constexpr std::string_view kServersOwn = "mccl/rank 0 only/";

/// Throw InvalidArgument if the key or value is longer than stores accept.
void check_key(std::string_view key);
void check_value(std::string_view key, std::string_view value);

/// Throws the TimeoutError for a key that was not set within `timeout`.
[[noreturn]] void throw_missing_key(const std::string& key, std::chrono::milliseconds timeout);

/// A store in memory. Counters are stored as decimal text, so that get() can also read them.
class MemoryStore final : public Store {
 public:
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;

  /// Returns the value without waiting; empty if there is none.
  std::optional<std::string> find(const std::string& key) const;

 private:
  /// Must be called with the mutex held. Throws InvalidArgument if the table is full.
  void put(const std::string& key, std::string value);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::size_t bytes_ = 0;  ///< Size of values_, including kEntryBytes per entry.
};

}  // namespace mccl::rendezvous
