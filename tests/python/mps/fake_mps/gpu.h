// A double of a Mac's GPU behind torch's key for MPS, which gives torch an "mps" device on machines
// without one. The host may touch the memory of its tensors only after a fence; see metal_double.h.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>

#include "support/metal_double.h"

namespace fake_mps {

using mccl::testing::MetalDouble;

/// Returns the double, which lives until the process ends.
const std::shared_ptr<MetalDouble>& gpu();

/// Makes new buffers shared with the host, as in torch 2.12 and newer, or private.
void set_shared(bool shared);

/// Sets this thread's current stream, as `torch.mps.set_stream` of torch 2.15 does; 0 is the
/// default.
void set_stream(std::int64_t number);

/// Returns the memory behind a tensor, or null if it has none.
MetalDouble::MemoryPtr memory_of(const at::Tensor& tensor);

/// Records a violation if the calling thread belongs to the library; `what` names the action.
void require_thread_of_caller(const char* what);

struct Counts {
  std::uint64_t events = 0;   ///< Events recorded.
  std::uint64_t waits = 0;    ///< Waits for all work of the device.
  std::uint64_t encoded = 0;  ///< Units of work that torch gave to the device.
  std::uint64_t copies = 0;   ///< Copies made by the library.
};
Counts counts();
void count_encoded();

}  // namespace fake_mps
