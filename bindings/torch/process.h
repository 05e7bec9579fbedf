// Detection of fork().
#pragma once

#include <cstdint>

namespace mccl_torch {

/// Number of forks between the first process and this one. It distinguishes a forked child from the
/// process that made a group. Unlike getpid(), it needs no system call.
std::uint32_t forks_so_far();

}  // namespace mccl_torch
