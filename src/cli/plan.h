// `mccl plan`: what schedule a call would take, and how long, without making it.
#pragma once

#include "cli/command.h"

namespace mccl::cli {

Command add_plan(CLI::App& program);

}  // namespace mccl::cli
