// Joins jobs that are separate from the job of mccl.distributed.
#pragma once

#include <nanobind/nanobind.h>

#include <map>
#include <memory>
#include <string>

#include "mccl/group.h"

namespace mccl_mlx {

/// Connects to the other ranks of the job that the settings describe (rank, world_size, root).
/// Returns a capsule (python::kGroupCapsule) of the group of all ranks; the group keeps its context
/// alive. Throws the errors of Context::create.
nanobind::capsule join(const std::map<std::string, std::string>& settings);

/// Returns the group in a capsule named python::kGroupCapsule. Throws a Python error for any other
/// capsule.
std::shared_ptr<mccl::Group> native_group_in(const nanobind::capsule& capsule);

/// Shuts down every living context that join() made, and notifies the peers. First waits up to 2 s
/// for pending calls of MLX.
void leave_all();

/// Must be called before and after fork(). The child abandons the contexts without notifying the
/// peers.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

}  // namespace mccl_mlx
