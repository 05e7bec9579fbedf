// A process that cleans up on the launcher's machine after the launcher has ended for any reason.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "base/descriptor.h"

namespace mccl::cli::launch {

/// A child process of the launcher, in a session of its own. When the launcher has ended, the
/// guardian ends all ranks and their children (SIGTERM, a grace time, SIGKILL) and removes the
/// job's folder.
class Guardian {
 public:
  /// Makes the folder, which only this user can enter, and forks. Must be called while this process
  /// has one thread. Throws Error on failure.
  explicit Guardian(std::chrono::milliseconds grace);
  /// Makes the guardian end all remaining processes, and blocks until it has done so.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  /// Folder for files of the job.
  const std::string& folder() const { return folder_; }
  /// Adds (watch) or removes (forget) a process group; `leader` is the process id of its leader.
  /// When the launcher ends, the guardian ends the groups that have been added and not removed.
  void watch(pid_t leader);
  void forget(pid_t leader);

 private:
  void send(pid_t what);

  std::string folder_;
  Descriptor pipe_;
  pid_t process_ = -1;
};

}  // namespace mccl::cli::launch
