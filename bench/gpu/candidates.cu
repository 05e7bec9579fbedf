// The library's kernels, and ways that may come to be among them: bench/gpu/sweep.py compares all.
#include "kernels/cuda/collectives.cu"
#include "kernels/cuda/piped.cuh"

#define MCCL_PIPED(type, suffix)                             \
  MCCL_KERNEL(mccl_piped1_##suffix, (piped<type, 1, false>)) \
  MCCL_KERNEL(mccl_piped2_##suffix, (piped<type, 2, false>)) \
  MCCL_KERNEL(mccl_piped4_##suffix, (piped<type, 4, false>)) \
  MCCL_KERNEL(mccl_pulled1_##suffix, (piped<type, 1, true>)) \
  MCCL_KERNEL(mccl_pulled2_##suffix, (piped<type, 2, true>)) \
  MCCL_KERNEL(mccl_pulled4_##suffix, (piped<type, 4, true>))

MCCL_PIPED(Bf16, bf16)
