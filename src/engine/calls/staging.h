// Counts the memory in which this rank stages data for transfers, for the metrics.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "mccl/metrics.h"
#include "node/arena.h"

namespace mccl::engine {

/// Adds up the staging memory of all users and reports changes to the metrics. Used under the
/// engine's progress lock.
class Staging {
 public:
  explicit Staging(std::shared_ptr<Metrics> metrics) : metrics_(std::move(metrics)) {}

  /// Sets the arena, which holds the memory shared with the node. Called once.
  void watch(std::shared_ptr<const node::Arena> arena) { arena_ = std::move(arena); }

  /// Reports that a user of memory outside the arena held `before` bytes and now holds `now` bytes.
  void change(std::int64_t before, std::int64_t now) {
    private_bytes_ += now - before;
    changed_ = true;
  }
  /// Reports that the arena's usage may have changed.
  void touch() { changed_ = true; }
  /// Updates the metrics if something changed.
  void report() {
    if (closed_ || !std::exchange(changed_, false)) return;
    tell(private_bytes_ + static_cast<std::int64_t>(arena_ ? arena_->taken() : 0));
  }
  /// Reports that all memory has been released. Later reports are no-ops.
  void close() {
    closed_ = true;
    tell(0);
  }

 private:
  void tell(std::int64_t bytes) { metrics_->record_staging(bytes - std::exchange(told_, bytes)); }

  const std::shared_ptr<Metrics> metrics_;
  std::shared_ptr<const node::Arena> arena_;  ///< Null if no memory is shared.
  std::int64_t private_bytes_ = 0;
  std::int64_t told_ = 0;
  bool changed_ = false;
  bool closed_ = false;
};

}  // namespace mccl::engine
