// Logs, once per job, which features its groups cannot use.
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
  /// `store` is that of the job. Once it has been destroyed, each process logs on its own.
  Notices(Log log, std::weak_ptr<Store> store) : log_(std::move(log)), store_(std::move(store)) {}

  /// Logs `text` at WARN once per job, on rank 0 of the first group that reports it. Logs it at
  /// INFO on all other ranks, and for all later groups. Requires that all ranks of a group report
  /// the same text.
  void warn(const Group& group, const std::string& text);

 private:
  bool is_first(const Group& group, const std::string& text);

  const Log log_;
  const std::weak_ptr<Store> store_;
  std::mutex mutex_;
  std::set<std::string> said_;  // guarded by mutex_
};

}  // namespace mccl::direct
