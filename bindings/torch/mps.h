// Tensors of MPS: where they lie, when they may be touched, and how results get there. Torch's own
// stream is given nothing here but on the thread of the caller; what continuations of futures give
// it, those of mccl.hooks too, they do on the thread that runs them.
#pragma once

#include <ATen/ATen.h>

#include <memory>

#include "mccl/fence.h"
#include "mccl/metal.h"

namespace mccl_torch {

/// A fence behind all that torch's stream has been given until now, on this thread. It is given to
/// the stream, which begins with what is before it; nobody waits. Throws mccl::InvalidArgument
/// where the thread's stream is not the default one, for which torch has no events.
std::shared_ptr<mccl::Fence> fence_of_mps();

/// Whether this process has had memory of MPS, as far as anybody has looked, and so may have work
/// on its stream.
bool mps_is_used();

/// Of its first element.
mccl::MetalPlace metal_place_of(const at::Tensor& tensor);

/// Throws for a tensor of MPS whose elements are not what lies in its memory, as those of a
/// conjugate's view: torch's stream alone could write them.
void require_written_as_it_lies(const char* call, const at::Tensor& tensor);

/// `to`, of MPS, becomes what `from`, contiguous, of the same shape and type, holds. On any thread,
/// beside torch's stream, when both are over with.
void copy_beside_torch(const at::Tensor& to, const at::Tensor& from);

/// As UntypedStorage.resize_, which torch has not for MPS: what fits of the data stays.
void resize_storage(c10::Storage storage, std::int64_t bytes);

/// Has torch's operators of collectives take tensors of MPS, where this torch has none that do.
/// Once.
void register_mps_operators();

}  // namespace mccl_torch
