// What a job's groups cannot use, said once.
#pragma once

#include <mutex>
#include <set>
#include <string>

#include "base/log.h"
#include "mccl/group.h"

namespace mccl::direct {

/// One for all groups of a job in this process. Thread-safe.
class Notices {
 public:
  explicit Notices(Log log) : log_(std::move(log)) {}

  /// At WARN on rank 0 of the first group that `text` is true of; at INFO on the other ranks and of
  /// all later groups, since the ranks of a group agree on it.
  void warn(const Group& group, const std::string& text);

 private:
  const Log log_;
  std::mutex mutex_;
  std::set<std::string> said_;  // guarded by mutex_
};

}  // namespace mccl::direct
