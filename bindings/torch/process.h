// Which process this is.
#pragma once

#include <cstdint>

namespace mccl_torch {

/// How often this process was forked, as its parents were: it tells a child of fork() from the
/// process that made a group, and does not ask the system, as getpid() does.
std::uint32_t forks_so_far();

}  // namespace mccl_torch
