// `mccl forward`: what mccl launch runs on hosts that do not reach the host of rank 0.
#pragma once

#include "cli/command.h"

namespace mccl::cli {

Command add_forward(CLI::App& program);

}  // namespace mccl::cli
