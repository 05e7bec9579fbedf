// Functions with which the ranks of a group exchange values, in order to agree on a device path.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "mccl/group.h"
#include "mccl/store.h"

namespace mccl::direct {

/// Returns the `own` values of all ranks, in rank order. All ranks of `group` must call it.
/// `timeout` defaults to the group's timeout.
template <typename T>
std::vector<T> gather(Group& group, const T& own,
                      std::optional<std::chrono::milliseconds> timeout = {}) {
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  group
      .all_gather({&own, sizeof(T), DType::u8}, {all.data(), sizeof(T) * all.size(), DType::u8},
                  {.timeout = timeout, .caller_waits = true})
      .wait();
  return all;
}

/// Returns "rank R: " followed by the objection of rank R, the lowest rank that has one. Returns an
/// empty string if `own` is empty on all ranks. All ranks must call this function, and all get the
/// same result.
std::string first_objection(Group& group, const std::string& own);

/// Identifies the device of a rank, so that other ranks can compare it with their own.
struct DeviceIdentity {
  char boot[64];         ///< Boot id of the running kernel, which identifies the host.
  char bus[16];          ///< Bus address of the device.
  std::int64_t process;  ///< Number that is unique to the process.
};

DeviceIdentity card_of(const std::string& bus);
bool on_one_host(const DeviceIdentity& a, const DeviceIdentity& b);
bool is_one_device(const DeviceIdentity& a, const DeviceIdentity& b);

/// Logs each warning once per job, although many groups and ranks report it. Shared by all groups
/// of a job in this process. Thread-safe.
class Notices {
 public:
  /// `store` is the job's store. Once it has been destroyed, warn() logs a text at WARN once in
  /// each process that is rank 0 of a group, not once per job.
  Notices(Log log, std::weak_ptr<Store> store) : log_(std::move(log)), store_(std::move(store)) {}

  /// Logs `text` at WARN once per job, on rank 0 of the first group that reports it. Logs it at
  /// INFO on all other ranks, and for all later groups. All ranks of a group must report the same
  /// text.
  void warn(const Group& group, const std::string& text);

 private:
  bool is_first(const Group& group, const std::string& text);

  const Log log_;
  const std::weak_ptr<Store> store_;
  std::mutex mutex_;
  std::set<std::string> said_;  // guarded by mutex_
};

}  // namespace mccl::direct
