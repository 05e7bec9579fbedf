// What a job's groups cannot use, logged once.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "base/log.h"
#include "mccl/group.h"
#include "mccl/store.h"

namespace mccl::direct {

/// Shared by all groups of a job in this process. Thread-safe.
class Notices {
 public:
  /// `store` is the job's. Once it has gone, each process logs for itself.
  Notices(Log log, std::weak_ptr<Store> store) : log_(std::move(log)), store_(std::move(store)) {}

  /// Logs `text` at WARN once per job: on rank 0 of the first group that comes to it, since the
  /// ranks of a group agree on it. Logs it at INFO on the other ranks and for all later groups.
  void warn(const Group& group, const std::string& text);

 private:
  bool is_first(const Group& group, const std::string& text);

  const Log log_;
  const std::weak_ptr<Store> store_;
  std::mutex mutex_;
  std::set<std::string> said_;  // guarded by mutex_
};

}  // namespace mccl::direct
