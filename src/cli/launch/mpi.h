// A job that Open MPI's mpirun starts instead.
#pragma once

#include <string>
#include <vector>

#include "cli/launch/job.h"

namespace mccl::cli::launch {

/// The words of an mpirun that starts the job's ranks on its hosts; `arguments` are the user's own.
std::vector<std::string> mpirun_words(const Job& job, const std::vector<std::string>& arguments);

/// Becomes that mpirun. Throws Error when it is not there.
[[noreturn]] void become_mpirun(const Job& job, const std::vector<std::string>& arguments,
                                const Variables& inherited);

}  // namespace mccl::cli::launch
