// Jobs beside the one of mccl.distributed, and how groups come from one extension module to
// another.
#pragma once

#include <nanobind/nanobind.h>

#include <map>
#include <memory>
#include <string>

#include "mccl/group.h"

namespace mccl_mlx {

/// The capsule holds a `std::shared_ptr<mccl::Group>*` that it owns.
inline constexpr const char* kGroupCapsule = "mccl.group";

/// Meets the other ranks of the job that the settings tell of (rank, world_size, root), and returns
/// the group of all as a capsule. The group keeps its context. Throws what Context::create throws.
nanobind::capsule join(const std::map<std::string, std::string>& settings);

/// The group in a capsule of that name.
std::shared_ptr<mccl::Group> native_group_in(const nanobind::capsule& capsule);

/// Ends every context that was made here and lives: says goodbye to the peers.
void leave_all();

/// Around fork(): the child forgets the contexts without a word to the peers.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

}  // namespace mccl_mlx
