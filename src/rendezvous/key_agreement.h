// How a job that was given no key gets one.
//
// Rank 0 makes a random key, writes it to a file that only its user may open, and says in the store
// where that is. Each other rank tries to read it and answers in the store whether it could. When
// all could, they have a key that never was in the store, and the file is removed. When one could
// not (it runs on another machine, as another user or in another container), rank 0 publishes a
// second key in the store until all have met: whoever reads the store then has it too, and every
// rank warns of that.
//
// Rank 0's words cannot be changed by others, as the server of the store sees to (kServersOwn); who
// answers in the place of a rank that could read the file is found out by that rank.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/log.h"
#include "mccl/config.h"
#include "mccl/store.h"

namespace mccl::rendezvous {

/// Throws InvalidArgument where `require_key` is set and no key is.
void check_required_key(const Config& config, int rank, int size);

struct KeyAgreement {
  int rank;
  int size;
  const Config& config;
  Store& store;
  const Log& log;
  Clock::time_point deadline;
  std::vector<std::string> folders = private_folders();  ///< For rank 0's file.
};

/// The job's key: the one that was set, or one agreed on by all ranks. Every rank asks the store
/// three times, rank 0 as often as there are ranks. Throws TimeoutError when a rank is missing.
std::string agree_on_key(const KeyAgreement& agreement);

/// All ranks have met, so nobody need read a published key any more: rank 0 takes it back.
void take_back_key(const Config& config, int rank, Store& store);

}  // namespace mccl::rendezvous
