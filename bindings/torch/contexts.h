// Creates the contexts of this process. Each of torch's process groups becomes a group of such a
// context.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend.h"
#include "mccl/metrics.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace mccl_torch {

/// Description of a process group that torch asks this backend to create.
struct GroupRequest {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout;
  std::string name;
  std::vector<std::int64_t> global_ranks;  ///< Empty for the default group.
  /// The ranks in `global_ranks`, in the numbering of the context of torch's default group. The two
  /// numberings differ once the default group has been shrunk, because torch then renumbers its
  /// ranks.
  std::vector<std::int64_t> members;
  std::map<std::string, std::string> settings;
  std::shared_ptr<mccl::Metrics> metrics;
  /// True for a default group whose ranks do not meet through torch's store. They meet through the
  /// JobStore in `store` if there is one, and otherwise as the environment specifies.
  bool elsewhere = false;
};

/// Throws InvalidArgument unless the codec is topk. Called for a group with a topk ratio of its
/// own.
void require_topk(const mccl::Compression& compression);

/// Creates or joins the group of a request; all ranks of that group must call this function. The
/// default group makes a context. Other groups belong to that context, or make their own context if
/// the default group uses a different backend. A context ends with its last group. Throws torch's
/// errors.
BackendParts join(const GroupRequest& request);

/// True if a process group of this backend exists. The settings can then no longer change.
bool has_contexts();

/// Shuts down every context of this process and notifies the peers.
void shutdown_contexts();

/// Must be called before and after fork(). The child abandons the contexts without notifying the
/// peers.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

}  // namespace mccl_torch
