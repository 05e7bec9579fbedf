// `mccl launch`: starts the ranks of a job, here and on other machines, and stays with them.
#pragma once

#include "cli/command.h"

namespace mccl::cli {

Command add_launch(CLI::App& program);

}  // namespace mccl::cli
