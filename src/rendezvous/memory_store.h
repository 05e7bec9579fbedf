// The table behind every store.
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
/// Of a table: 16 KiB for each of 4096 ranks. Every entry counts with what it takes beside its
/// text.
inline constexpr std::size_t kMaxTableBytes = std::size_t{64} << 20;
inline constexpr std::size_t kEntryBytes = 128;
/// In the name of a key: the process that serves the store writes it, nobody else does.
inline constexpr std::string_view kServersOwn = "mccl/rank 0 only/";

/// Throw InvalidArgument for what no store takes.
void check_key(std::string_view key);
void check_value(std::string_view key, std::string_view value);

/// For a key that did not appear in time.
[[noreturn]] void throw_missing_key(const std::string& key, std::chrono::milliseconds timeout);

/// Counters are kept as decimal text, so that get reads them too.
class MemoryStore final : public Store {
 public:
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;

  /// Without waiting.
  std::optional<std::string> find(const std::string& key) const;

 private:
  /// Under the mutex. Throws InvalidArgument when the table is full.
  void put(const std::string& key, std::string value);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::size_t bytes_ = 0;  ///< Of values_, with kEntryBytes for each.
};

}  // namespace mccl::rendezvous
