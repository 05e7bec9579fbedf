#include "base/thread.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <system_error>
#include <utility>

#include "mccl/error.h"

namespace mccl {

namespace {

/// While an object of this class exists, threads that the current thread starts block all signals
/// that another thread can handle.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    // A fault's signal goes to the faulting thread. If that thread blocked the signal, the process
    // would end without the report of a signal handler.
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
      sigdelset(&blocked, fault);
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

void name_this_thread(const std::string& name) {
#ifdef __APPLE__
  pthread_setname_np(name.c_str());
#else
  pthread_setname_np(pthread_self(), name.c_str());
#endif
}

std::string shown(rlim_t limit) {
  return limit == RLIM_INFINITY ? "no limit" : fmt::format("at most {}", limit);
}

std::string limits_in_force() {
  rlimit threads = {RLIM_INFINITY, RLIM_INFINITY};
  rlimit memory = {RLIM_INFINITY, RLIM_INFINITY};
  ::getrlimit(RLIMIT_NPROC, &threads);
  ::getrlimit(RLIMIT_AS, &memory);
  return fmt::format(
      "processes and threads of this user: {} (ulimit -u); bytes of memory of this "
      "process: {} (ulimit -v)",
      shown(threads.rlim_cur), shown(memory.rlim_cur));
}

}  // namespace

std::thread start_thread(const std::string& name, std::function<void()> body) {
  const SignalsBlocked for_the_new_one;
  try {
    return std::thread([name, body = std::move(body)] {
      name_this_thread(name);
      body();
    });
  } catch (const std::system_error& error) {
    throw Error(fmt::format(
        "cannot start the thread \"{}\": {}. The limits are: {}; a container or a service may "
        "allow fewer threads (pids.max of its cgroup). End other processes, or raise the limit",
        name, error.code().message(), limits_in_force()));
  }
}

}  // namespace mccl
