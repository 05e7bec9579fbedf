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

/// Description of a process group to create, as torch gives it.
struct GroupRequest {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout;
  std::string name;
  std::vector<std::int64_t> global_ranks;  ///< Empty for the default group.
  /// The same ranks as numbered by the context of torch's default group. They differ from
  /// `global_ranks` once that group has been shrunk, because torch then numbers its ranks anew.
  std::vector<std::int64_t> members;
  std::map<std::string, std::string> settings;
  std::shared_ptr<mccl::Metrics> metrics;
  /// True for a default group that does not meet through torch's store. Its ranks meet through the
  /// JobStore in `store` if there is one, else as the environment specifies.
  bool elsewhere = false;
};

/// Used for a group that sets a topk ratio. Throws InvalidArgument unless its codec is topk.
void require_topk(const mccl::Compression& compression);

/// Creates or joins the group of a request; all of its ranks must call it. The default group makes
/// a context. Other groups belong to that context, or make their own context if the default group
/// uses a different backend. A context ends with its last group. Throws torch's errors.
BackendParts join(const GroupRequest& request);

/// True if a process group of this backend exists, so that its settings are fixed.
bool has_contexts();

/// Shuts down every context of this process and notifies the peers.
void shutdown_contexts();

/// Must be called before and after fork(). The child abandons the contexts without notifying the
/// peers.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

}  // namespace mccl_torch
