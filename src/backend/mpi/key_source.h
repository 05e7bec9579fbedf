// Where the ranks of an MPI job get the job's key.
#pragma once

namespace mccl::mpi {

/// Facts about the ranks of a job, which are equal on all ranks.
struct KeyFacts {
  bool one_host = true;        ///< All ranks run on one host.
  bool encrypts = false;       ///< MCCL_ENCRYPTION is on on some ranks.
  bool some_have_key = false;  ///< MCCL_JOB_KEY is set on some ranks.
  bool some_lack_key = true;   ///< MCCL_JOB_KEY is not set on some ranks.
  bool is_required = false;    ///< MCCL_REQUIRE_KEY is 1 on some ranks.
  bool is_waived = false;      ///< MCCL_REQUIRE_KEY is 0 on all ranks.
};

enum class KeySource {
  settings,  ///< All ranks use MCCL_JOB_KEY.
  mpi,       ///< Rank 0 makes a key and sends it through MPI, which does not encrypt it.
};

/// Throws InvalidArgument, with the next step, if `rank` must not start: if MPI would send data
/// between hosts that must be encrypted, if only some ranks have a key, or if no rank has one and a
/// key is required. Without MCCL_REQUIRE_KEY, a key is required between hosts.
KeySource key_source_of(const KeyFacts& facts, int rank);

}  // namespace mccl::mpi
