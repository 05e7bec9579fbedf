// The table behind every store.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "mccl/store.h"

namespace mccl::rendezvous {

inline constexpr std::size_t kMaxKeyBytes = std::size_t{1} << 10;
inline constexpr std::size_t kMaxValueBytes = std::size_t{1} << 20;

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
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace mccl::rendezvous
