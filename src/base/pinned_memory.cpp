#include "base/pinned_memory.h"

namespace mccl {

PinnedMemory& pinned_memory() {
  static PinnedMemory instance;
  return instance;
}

}  // namespace mccl
