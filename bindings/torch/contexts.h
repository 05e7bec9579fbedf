// The contexts of this process, and how a torch process group becomes a group of one of them.
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

/// What torch tells about a process group that is to be made.
struct GroupRequest {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout;
  std::string name;
  std::vector<std::int64_t> global_ranks;  ///< Empty for the default group.
  std::map<std::string, std::string> settings;
  std::shared_ptr<mccl::Metrics> metrics;
  /// The default group meets where the environment says, with ranks that may not be torch's; then
  /// `store` is of no use.
  bool elsewhere = false;
};

/// A collective of the group's ranks. The default group makes a context; the others are groups of
/// that context, or make their own when the default group belongs to another backend. A context
/// ends with its last group.
/// Of a group that is given a ratio of its own: throws InvalidArgument where no topk uses it.
void require_topk(const mccl::Compression& compression);

Membership join(const GroupRequest& request);

/// Whether a process group of this backend is there, whose settings stand.
bool has_contexts();

/// Ends every context of this process: says goodbye to the peers.
void shutdown_contexts();

/// Around fork(): the child forgets the contexts without a word to the peers.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

}  // namespace mccl_torch
