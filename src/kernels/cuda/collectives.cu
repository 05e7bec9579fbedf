// Kernels for collectives, which write to the memory of other ranks' GPUs. The headers describe how
// the kernels of different ranks synchronise.
#include "kernels/cuda/broadcast.cuh"
#include "kernels/cuda/flagged.cuh"
#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/pooled.cuh"
#include "kernels/cuda/staged.cuh"

using namespace mccl::kernels::cuda;

#define MCCL_KERNEL(name, body)                                                                   \
  extern "C" __global__ void __launch_bounds__(kThreads, 1)                                       \
      name(const __grid_constant__ Fabric fabric, const __grid_constant__ KernelArguments task) { \
    body(fabric, task);                                                                           \
  }

MCCL_KERNEL(mccl_flagged_sum_f32, (flagged<F32, true>))
MCCL_KERNEL(mccl_flagged_sum_f16, (flagged<F16, true>))
MCCL_KERNEL(mccl_flagged_sum_bf16, (flagged<Bf16, true>))
MCCL_KERNEL(mccl_flagged_parts_f32, (flagged_parts<F32, true>))
MCCL_KERNEL(mccl_flagged_parts_f16, (flagged_parts<F16, true>))
MCCL_KERNEL(mccl_flagged_parts_bf16, (flagged_parts<Bf16, true>))
MCCL_KERNEL(mccl_flagged_scatter_f32, (flagged_parts<F32, false>))
MCCL_KERNEL(mccl_flagged_scatter_f16, (flagged_parts<F16, false>))
MCCL_KERNEL(mccl_flagged_scatter_bf16, (flagged_parts<Bf16, false>))
MCCL_KERNEL(mccl_flagged_gather, (flagged<F32, false>))
MCCL_KERNEL(mccl_all_reduce_f32, (staged<F32, Shape::all_reduce>))
MCCL_KERNEL(mccl_all_reduce_f16, (staged<F16, Shape::all_reduce>))
MCCL_KERNEL(mccl_all_reduce_bf16, (staged<Bf16, Shape::all_reduce>))
MCCL_KERNEL(mccl_reduce_scatter_f32, (staged<F32, Shape::reduce_scatter>))
MCCL_KERNEL(mccl_reduce_scatter_f16, (staged<F16, Shape::reduce_scatter>))
MCCL_KERNEL(mccl_reduce_scatter_bf16, (staged<Bf16, Shape::reduce_scatter>))
MCCL_KERNEL(mccl_packed_sum_f32, (packed<F32>))
MCCL_KERNEL(mccl_packed_sum_f16, (packed<F16>))
MCCL_KERNEL(mccl_packed_sum_bf16, (packed<Bf16>))
MCCL_KERNEL(mccl_packed_parts_f32, (packed_parts<F32>))
MCCL_KERNEL(mccl_packed_parts_f16, (packed_parts<F16>))
MCCL_KERNEL(mccl_packed_parts_bf16, (packed_parts<Bf16>))
MCCL_KERNEL(mccl_all_gather, (staged<F32, Shape::all_gather>))
MCCL_KERNEL(mccl_all_to_all, (staged<F32, Shape::all_to_all>))
MCCL_KERNEL(mccl_flagged_broadcast, flagged_broadcast)
MCCL_KERNEL(mccl_broadcast, broadcast)
MCCL_KERNEL(mccl_pooled_reduce_scatter_f32, (pooled<F32, Shape::reduce_scatter>))
MCCL_KERNEL(mccl_pooled_reduce_scatter_f16, (pooled<F16, Shape::reduce_scatter>))
MCCL_KERNEL(mccl_pooled_reduce_scatter_bf16, (pooled<Bf16, Shape::reduce_scatter>))
MCCL_KERNEL(mccl_pooled_all_gather, (pooled<F32, Shape::all_gather>))
