// `mccl doctor`: what is wrong with a machine, or a cluster, before a job runs on it.
#pragma once

#include "cli/command.h"

namespace mccl::cli {

Command add_doctor(CLI::App& program);

}  // namespace mccl::cli
