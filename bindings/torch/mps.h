// Functions for MPS tensors: where their memory is, when it may be accessed, and how results reach
// it. These functions enqueue work in torch's stream only on the caller's thread. Continuations of
// futures, including those of mccl.hooks, use the stream on the thread that runs them.
#pragma once

#include <ATen/ATen.h>

#include <memory>

#include "mccl/fence.h"
#include "mccl/metal.h"

namespace mccl_torch {

/// Creates a fence that passes when torch's stream has finished all work that this thread has
/// submitted so far. Enqueues the fence in the stream, which starts the work that is pending there.
/// Does not block. Throws mccl::InvalidArgument if the thread's stream is not the default one,
/// because torch supports events only on the default stream.
std::shared_ptr<mccl::Fence> fence_of_mps();

/// True if this process holds or held MPS memory, so that the MPS stream may have work.
bool mps_is_used();

/// Metal buffer and byte offset of the tensor's first element.
mccl::MetalPlace metal_place_of(const at::Tensor& tensor);

/// Throws ValueError for an MPS tensor whose memory does not hold the values of its elements, such
/// as a view of a conjugate. Only torch's stream could write such a tensor.
void require_written_as_it_lies(const char* call, const at::Tensor& tensor);

/// Copies `from` to `to`. `to` is on MPS; `from` is contiguous with the same shape and type. Does
/// not use torch's stream. May be called on any thread, once no other work uses either tensor.
void copy_beside_torch(const at::Tensor& to, const at::Tensor& from);

/// Resizes a storage, as torch's UntypedStorage.resize_ does on other devices; torch lacks this
/// function for MPS. Keeps the data that fits; `bytes` must not be negative.
void resize_storage(c10::Storage storage, std::int64_t bytes);

/// Registers MPS kernels for those of torch's collective operators (c10d::allreduce_ and so on)
/// that have none. Called once.
void register_mps_operators();

}  // namespace mccl_torch
