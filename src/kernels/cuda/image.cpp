#include "kernels/cuda/image.h"

#ifdef MCCL_CUDA_IMAGE
// MCCL_CUDA_IMAGE is the path of the file that nvcc has written.
__asm__(
    ".section .rodata\n"
    ".balign 64\n"
    ".globl mccl_cuda_image_begin\n"
    ".globl mccl_cuda_image_end\n"
    ".hidden mccl_cuda_image_begin\n"
    ".hidden mccl_cuda_image_end\n"
    "mccl_cuda_image_begin:\n"
    ".incbin \"" MCCL_CUDA_IMAGE
    "\"\n"
    "mccl_cuda_image_end:\n"
    ".byte 0\n"
    ".previous\n");
extern "C" const std::byte mccl_cuda_image_begin[];
extern "C" const std::byte mccl_cuda_image_end[];
#endif

namespace mccl::kernels::cuda {

std::span<const std::byte> image() {
#ifdef MCCL_CUDA_IMAGE
  return {mccl_cuda_image_begin, mccl_cuda_image_end};
#else
  return {};
#endif
}

}  // namespace mccl::kernels::cuda
