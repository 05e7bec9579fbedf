// Pauses a core that spins.
#pragma once

namespace mccl::engine {

inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace mccl::engine
