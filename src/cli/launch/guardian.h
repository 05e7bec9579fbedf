// The process that ends what a launcher leaves behind on its own machine, however it ends.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "cli/launch/process.h"

namespace mccl::cli::launch {

/// A small process beside the launcher, in a session of its own. As soon as the launcher is gone it
/// ends all ranks with their children (SIGTERM, a grace time, SIGKILL) and removes the folder.
class Guardian {
 public:
  /// Makes the folder, which only this user can enter, and forks: while this process has one
  /// thread. Throws Error.
  explicit Guardian(std::chrono::milliseconds grace);
  /// Has it end whatever is still there, and waits for that.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  /// For files of the job.
  const std::string& folder() const { return folder_; }
  /// `leader` leads the process group of a rank, or does so no longer.
  void watch(pid_t leader);
  void forget(pid_t leader);

 private:
  void tell(pid_t what);

  std::string folder_;
  Descriptor pipe_;
  pid_t process_ = -1;
};

}  // namespace mccl::cli::launch
