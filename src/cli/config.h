// `mccl config`: from a heap of cables to a hostfile.
#pragma once

#include "cli/command.h"

namespace mccl::cli {

Command add_config(CLI::App& program);

}  // namespace mccl::cli
