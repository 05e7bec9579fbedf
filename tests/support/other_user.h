// Another user of this host, for tests that run as root.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

namespace mccl::testing {

inline constexpr uid_t kOtherUser = 65534;

/// True if a child process can become kOtherUser. Root in a container may have no other user.
inline bool can_become_another_user() {
  if (::geteuid() != 0) return false;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::setuid(kOtherUser) == 0 ? 0 : 1);
  int status = 1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace mccl::testing
