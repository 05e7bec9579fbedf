// `mccl bench`: how fast the collectives are here, beside what the machine could do.
#pragma once

#include "cli/command.h"

namespace mccl::cli {

Command add_bench(CLI::App& program);

}  // namespace mccl::cli
