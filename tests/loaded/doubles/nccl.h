// What the double of NCCL is told, and tells.
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
  std::string last_error;  ///< What it then says.
  int asynchronous = 0;    ///< What a communicator has come to by itself.

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
  int in_progress = 0;             ///< How often it says yet that a call goes on.
  long communicators = 0;
};

}  // namespace mccl::testing
