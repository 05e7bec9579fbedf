// `mccl probe`: what mccl doctor and mccl config run on other hosts, to see what connects them.
#pragma once

#include "cli/command.h"

namespace mccl::cli {

Command add_probe(CLI::App& program);

}  // namespace mccl::cli
