// `mccl completion` and `mccl man`: what shells and man(1) know of the program, made from its
// flags.
#pragma once

#include "cli/command.h"

namespace mccl::cli {

Command add_completion(CLI::App& program);
Command add_man(CLI::App& program);

}  // namespace mccl::cli
