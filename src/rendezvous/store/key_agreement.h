// Provides a key for a job whose ranks have none configured (MCCL_JOB_KEY is not set).
//
// Rank 0 makes a random key, writes it to a file that only its user may open, and publishes the
// path in the store. Each other rank tries to read the file and reports the result in the store. If
// all ranks succeed, the key was never in the store, and the file remains until the job ends, so
// that a process that comes too late can report itself (second_process.h). If a rank cannot read
// the file (because it runs on another machine, as another user or in another container), every
// rank raises an error that says how to make a key. With MCCL_REQUIRE_KEY=0, rank 0 instead
// publishes a second key in the store until all ranks are connected. Every reader of the store then
// knows that key as well, and every rank warns about it.
//
// Other processes cannot change what rank 0 publishes: the store's server enforces it
// (kServersOwn). If an outsider answers in place of a rank that could read the file, that rank
// detects the false answer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "mccl/config.h"
#include "mccl/store.h"
#include "rendezvous/connections/handshake.h"
#include "rendezvous/connections/proof.h"

namespace mccl::rendezvous {

/// Returns which processes this rank accepts without a job key, as set by `config.require_key`.
Keyless keyless_of(const Config& config);

/// Returns this process's side of a handshake under the job's key, with rank 0 and size 0
/// (unknown).
Party party_of(const Config& config);

/// Throws InvalidArgument if a job of several ranks has no job key, and either `require_key` is 1,
/// or encryption is on and `require_key` is 0.
void check_required_key(const Config& config, int rank, int size);

/// Throws InvalidArgument if `self` encrypts, but has no secret to derive keys from: it has no job
/// key and accepts anyone. Every listener to the handshake could then derive the same keys.
void check_key_for_encryption(const Party& self);

/// Returns advice for an error about missing ranks: without a job key, a rank of another host or
/// user cannot join. Empty if such a rank can join.
std::string advice_without_key(const Config& config);

struct KeyAgreement {
  int rank;
  int size;
  const Config& config;
  Store& store;
  const Log& log;
  Clock::time_point deadline;
  std::vector<std::string> folders = private_folders();  ///< Candidate folders for rank 0's file.
  /// Set on rank 0 if all ranks have read its file, which this object then keeps. If null, the file
  /// is removed.
  std::shared_ptr<const KeyFile>* file = nullptr;
};

/// Returns the job's key: the configured one, or one that all ranks agree on. To agree, rank 0
/// makes two requests to the store and one per other rank; each other rank makes three. Throws
/// TimeoutError if a rank is missing, and InvalidArgument if a rank cannot read rank 0's key file
/// and MCCL_REQUIRE_KEY is not 0.
SecretBytes agree_on_key(const KeyAgreement& agreement);

/// Returns the key on which the ranks of a job have agreed, if this process has it: the configured
/// one, or the one in rank 0's file.
std::optional<SecretBytes> agreed_key(const Config& config, Store& store);

/// Returns the key of the run `name` of a job. A process of an earlier run knows the job's key, but
/// not the name of this run, so its proofs are not accepted.
SecretBytes secret_of_run(const SecretBytes& job_key, const std::string& name);

/// If no job key is configured, rank 0 overwrites the entry of the store that may hold the key.
/// Must not be called before all ranks are connected, because a rank may need the entry until then.
void take_back_key(const Config& config, int rank, Store& store);

}  // namespace mccl::rendezvous
