#include "rendezvous/store/memory_store.h"

#include <fmt/format.h>

#include <utility>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::rendezvous {

namespace {

std::string start_of(std::string_view key) { return std::string(key.substr(0, 200)); }

std::int64_t counter_of(const std::string& key, const std::string& text) {
  if (const auto value = parse_integer(text)) return *value;
  throw InvalidArgument(
      fmt::format("the value of the store key \"{}\" is not a counter", start_of(key)));
}

}  // namespace

void check_key(std::string_view key) {
  if (key.size() <= kMaxKeyBytes) return;
  throw InvalidArgument(
      fmt::format("a store key of {} bytes (\"{}...\") is too long: at most {} bytes are allowed",
                  key.size(), key.substr(0, 40), kMaxKeyBytes));
}

void check_value(std::string_view key, std::string_view value) {
  if (value.size() <= kMaxValueBytes) return;
  throw InvalidArgument(fmt::format(
      "a value of {} bytes for the store key \"{}\" is too long: at most {} bytes are allowed",
      value.size(), start_of(key), kMaxValueBytes));
}

void throw_missing_key(const std::string& key, milliseconds timeout) {
  throw TimeoutError(fmt::format(
      "the store key \"{}\" was not set within {:.1f} s; has the rank that sets it started, and "
      "does it use the same store?",
      start_of(key), std::chrono::duration<double>(timeout).count()));
}

void MemoryStore::set(const std::string& key, std::string_view value) {
  check_key(key);
  check_value(key, value);
  {
    const std::lock_guard lock(mutex_);
    put(key, std::string(value));
  }
  changed_.notify_all();
}

void MemoryStore::put(const std::string& key, std::string value) {
  const auto found = values_.find(key);
  const std::size_t before =
      found == values_.end() ? 0 : key.size() + found->second.size() + kEntryBytes;
  const std::size_t after = bytes_ - before + key.size() + value.size() + kEntryBytes;
  if (after > kMaxTableBytes) {
    throw InvalidArgument(fmt::format(
        "the store has no room for the key \"{}\" and its {} bytes: it holds {} keys and is full "
        "at {} MiB; the store is only for connecting the ranks, so send data through a group",
        start_of(key), value.size(), values_.size(), kMaxTableBytes >> 20));
  }
  bytes_ = after;
  values_.insert_or_assign(key, std::move(value));
}

std::string MemoryStore::get(const std::string& key, milliseconds timeout) {
  check_key(key);
  std::unique_lock lock(mutex_);
  auto found = values_.end();
  const auto there = [&] { return (found = values_.find(key)) != values_.end(); };
  // Without this limit, a timeout near the maximum would overflow to a time in the past.
  if (!changed_.wait_for(lock, std::min(timeout, kLongestWait), there))
    throw_missing_key(key, timeout);
  return found->second;
}

std::int64_t MemoryStore::add(const std::string& key, std::int64_t amount) {
  check_key(key);
  std::int64_t sum = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    const std::int64_t before = found == values_.end() ? 0 : counter_of(key, found->second);
    if (__builtin_add_overflow(before, amount, &sum)) {
      throw InvalidArgument(fmt::format("adding {} to the store counter \"{}\" ({}) overflows",
                                        amount, start_of(key), before));
    }
    put(key, std::to_string(sum));
  }
  changed_.notify_all();
  return sum;
}

std::optional<std::string> MemoryStore::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return {};
  return found->second;
}

}  // namespace mccl::rendezvous

namespace mccl {

std::shared_ptr<Store> make_memory_store() { return std::make_shared<rendezvous::MemoryStore>(); }

}  // namespace mccl
