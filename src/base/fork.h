// What a process that forks must see to, so that its child runs.
#pragma once

#include <pthread.h>

#include <mutex>

namespace mccl {

/// From now on whoever forks waits for the mutex that `of` tells of, and has it meanwhile: a child
/// has only the thread that forked, and would find for ever locked what another thread was in.
/// The mutex lives as long as the process. Once
/// for each. Where there is no memory for it, forks are as dangerous as before.
template <std::mutex& (*of)()>
void hold_while_forking() {
  static_cast<void>(
      ::pthread_atfork([] { of().lock(); }, [] { of().unlock(); }, [] { of().unlock(); }));
}

}  // namespace mccl
