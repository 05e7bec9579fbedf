#include "cli/launch/backend.h"

namespace mccl::cli::launch {

const char* name_of(Backend backend) {
  constexpr const char* kNames[] = {"any", "ring", "jaccl", "jaccl-ring", "nccl", "mpi"};
  return kNames[static_cast<int>(backend)];
}

}  // namespace mccl::cli::launch
