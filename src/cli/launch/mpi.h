// A job that an MPI's mpirun starts instead.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/job.h"

namespace mccl::cli::launch {

/// Hydra is MPICH's, Intel MPI's and MVAPICH's.
enum class MpirunKind { open_mpi, hydra };

/// By what an mpirun answers to --version. Throws Error for one that is neither.
MpirunKind kind_of_mpirun(const std::string& program, std::string_view version);

/// What the ranks get of the job beyond what mpirun tells them; `port` is torch's.
Variables variables_of_mpi(const Job& job, std::uint16_t port, const Variables& inherited);

/// The words of an mpirun that starts the job's ranks on its hosts, with these variables;
/// `arguments` are the user's own.
std::vector<std::string> mpirun_words(const Job& job, MpirunKind kind, const Variables& variables,
                                      const std::vector<std::string>& arguments);

/// Becomes that mpirun, or only shows what it would run. Throws Error when there is none.
void become_mpirun(const Job& job, const std::vector<std::string>& arguments, std::uint16_t port,
                   const Variables& inherited, bool dry_run);

}  // namespace mccl::cli::launch
