// The double of a Mac's GPU, behind torch's key for MPS: what torch calls "mps" on a machine that
// has none. Its tensors lie in memory that the host may touch only after a fence; see
// metal_double.h.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>

#include "support/metal_double.h"

namespace fake_mps {

using mccl::testing::MetalDouble;

/// Lives until the process ends.
const std::shared_ptr<MetalDouble>& gpu();

/// Whether buffers are shared with the host from now on, as in torch 2.12 and newer, or private.
void set_shared(bool shared);

/// This thread's current stream, as `torch.mps.set_stream` of torch 2.15 sets it; 0: the default.
void set_stream(std::int64_t number);

/// The memory behind a tensor; null where it has none.
MetalDouble::MemoryPtr memory_of(const at::Tensor& tensor);

/// Puts on record that `what` was done by a thread of the library's, where it was.
void require_thread_of_caller(const char* what);

struct Counts {
  std::uint64_t events = 0;   ///< Recorded.
  std::uint64_t waits = 0;    ///< For all that the device had been given.
  std::uint64_t encoded = 0;  ///< What torch gave to the device.
  std::uint64_t copies = 0;   ///< By the library.
};
Counts counts();
void count_encoded();

}  // namespace fake_mps
