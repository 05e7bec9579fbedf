// Locks mutexes during fork(), so that the child can use them.
#pragma once

#include <pthread.h>

#include <mutex>

namespace mccl {

/// Makes every thread that forks later hold the mutex returned by `of` during the fork. A child has
/// only the thread that forked, so a mutex held by another thread would stay locked there forever.
/// The mutex must live as long as the process. Call this once for each mutex. No effect if the
/// system is out of memory.
template <std::mutex& (*of)()>
void hold_while_forking() {
  static_cast<void>(
      ::pthread_atfork([] { of().lock(); }, [] { of().unlock(); }, [] { of().unlock(); }));
}

}  // namespace mccl
