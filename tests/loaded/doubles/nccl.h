// The recorded calls and the configured results of the NCCL substitute.
#pragma once

#include <mutex>
#include <string>
#include <vector>

namespace mccl::testing {

struct NcclDouble {
  struct Id {
    char bytes[128];
  };
  int version = 22809;
  std::string fails;       ///< A call that fails, such as "CommInit".
  std::string last_error;  ///< The error text after that.
  int asynchronous = 0;    ///< The asynchronous error of all communicators.

  void note(const std::string& call) {
    const std::lock_guard lock(mutex);
    calls.push_back(call);
  }
  std::vector<std::string> seen() const {
    const std::lock_guard lock(mutex);
    return calls;
  }

  mutable std::mutex mutex;
  std::vector<std::string> calls;  ///< Guarded by mutex.
  int in_progress = 0;             ///< How many more queries report that a call is in progress.
  long communicators = 0;
};

}  // namespace mccl::testing
