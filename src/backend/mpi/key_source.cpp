#include "backend/mpi/key_source.h"

#include <fmt/format.h>

#include "mccl/error.h"
#include "rendezvous/connections/proof.h"

namespace mccl::mpi {

KeySource key_source_of(const KeyFacts& facts, int rank) {
  using rendezvous::kHowToMakeAKey;
  if (facts.encrypts && !facts.one_host) {
    throw InvalidArgument(
        "MCCL_ENCRYPTION is on, but MPI does not encrypt what the backend mpi sends between hosts: "
        "set MCCL_BACKEND=native, or MCCL_ENCRYPTION=off if the network is trusted");
  }
  if (!facts.some_lack_key) return KeySource::settings;
  if (facts.some_have_key) {
    throw InvalidArgument(
        fmt::format("rank {} does not start: MCCL_JOB_KEY is set on some ranks of the MPI job, but "
                    "not on all; pass it to every rank (Open MPI: mpirun -x MCCL_JOB_KEY, MPICH: "
                    "mpiexec -genvlist MCCL_JOB_KEY)",
                    rank));
  }
  if (facts.is_required) {
    throw InvalidArgument(
        fmt::format("rank {} does not start: MCCL_REQUIRE_KEY is 1 and MCCL_JOB_KEY is not set; {}",
                    rank, kHowToMakeAKey));
  }
  if (!facts.one_host && !facts.is_waived) {
    throw InvalidArgument(fmt::format(
        "rank {} does not start: MCCL_JOB_KEY is not set, and the ranks of the MPI job run on "
        "several hosts: {}. With MCCL_REQUIRE_KEY=0, rank 0 makes a key and sends it through MPI, "
        "which does not encrypt it",
        rank, kHowToMakeAKey));
  }
  return KeySource::mpi;
}

}  // namespace mccl::mpi
