// The functions of ProcessGroupMCCL with which a program replaces the members of the default group,
// for torch 2.14 and later (init_process_group with enable_reconfigure=True). Each process
// publishes a handle by its own means. The members of the next group then all pass the same handles
// and a new number (uuid), and meet under that number in the store with which the group was made.
#include <algorithm>
#include <cstdio>
#include <random>
#include <set>
#include <utility>
#include <variant>

#include "backend.h"
#include "contexts.h"
#include "torch/csrc/distributed/c10d/PrefixStore.hpp"

namespace mccl_torch {

/// The parts with which a group meets again.
struct ProcessGroupMCCL::Reconfiguring {
  GroupRequest request;
  std::string handle;  ///< Identifies this process among the members of the next group.
  std::set<std::int64_t> used = {};  ///< The numbers of earlier calls.
};

namespace {

std::string new_handle(int rank) {
  std::random_device random;
  std::string text = c10::str(kBackendName, ":", rank, ":");
  for (int i = 0; i < 4; ++i) {
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", random());
    text += digits;
  }
  return text;
}

}  // namespace

ProcessGroupMCCL::ProcessGroupMCCL(GroupRequest request)
    : c10d::Backend(request.rank, request.size),
      name_(request.name),
      forks_(forks_so_far()),
      timeout_(request.timeout),
      options_(c10::make_intrusive<Options>(request.timeout)) {
  init();
  options_->group_name = name_;
  std::string handle = new_handle(request.rank);
  reconfiguring_ = std::make_shared<Reconfiguring>(
      Reconfiguring{.request = std::move(request), .handle = std::move(handle)});
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE

namespace {

/// Returns the handles by rank. A set is sorted, so that all members get the same order.
std::vector<std::string> by_rank(const c10d::ReconfigureOptions& options) {
  if (const auto* const list = std::get_if<std::vector<std::string>>(&options.handles))
    return *list;
  const auto& unordered = std::get<std::unordered_set<std::string>>(options.handles);
  std::vector<std::string> handles(unordered.begin(), unordered.end());
  std::sort(handles.begin(), handles.end());
  return handles;
}

/// The rank of `handle` in the next group. Throws ValueError if `handles` cannot be its members.
int rank_of(const std::string& handle, const std::vector<std::string>& handles) {
  if (std::set(handles.begin(), handles.end()).size() < handles.size())
    invalid_argument("reconfigure", "a handle occurs twice; pass one handle for each member");
  const auto found = std::find(handles.begin(), handles.end(), handle);
  if (found == handles.end()) {
    invalid_argument("reconfigure",
                     c10::str("the ", handles.size(), " handles lack this process's own, \"",
                              handle, "\"; only members of the next group call reconfigure"));
  }
  return static_cast<int>(found - handles.begin());
}

}  // namespace

c10d::ReconfigureHandle ProcessGroupMCCL::get_reconfigure_handle() const {
  require_reconfigurable();
  return reconfiguring_->handle;
}

/// Leaves the earlier group first. Its calls that have not ended fail on all its members, but a
/// member that has yet to receive the result of an earlier call still receives it.
ProcessGroupMCCL::WorkPtr ProcessGroupMCCL::reconfigure(const c10d::ReconfigureOptions& opts) {
  require_reconfigurable();
  const std::vector<std::string> handles = by_rank(opts);
  GroupRequest request = reconfiguring_->request;
  request.rank = rank_of(reconfiguring_->handle, handles);
  request.size = static_cast<int>(handles.size());
  request.store =
      c10::make_intrusive<c10d::PrefixStore>(c10::str("reconfigure/", opts.uuid), request.store);
  TORCH_CHECK(reconfiguring_->used.insert(opts.uuid).second, "[rank ", rank_,
              "] reconfigure: the uuid ", opts.uuid,
              " was already used; pass a new value in every call");
  if (opts.timeout) {
    const double seconds = std::chrono::duration<double>(*opts.timeout).count();
    request.settings["connect_timeout"] = c10::str(seconds);
  }
  let_go();
  BackendParts parts = join(request);
  rank_ = request.rank;
  size_ = request.size;
  sequence_ = 0;
  splits_ = 0;
  ledger_->seen();
  ledger_->last_error = 0;
  options_->global_ranks_in_group = parts.global_ranks;
  parts.timeout = timeout_;
  {
    const std::lock_guard lock(mutex_);
    membership_ = std::move(parts);
  }
  c10d::BarrierOptions all_are_here;
  if (opts.timeout) all_are_here.timeout = *opts.timeout;
  return barrier(all_are_here);
}

void ProcessGroupMCCL::require_reconfigurable() const {
  TORCH_CHECK(reconfiguring_, "group \"", name_,
              "\" keeps its members; pass enable_reconfigure=True to init_process_group");
  TORCH_CHECK(!was_forked(), "group \"", name_,
              "\" belongs to the process that forked this one; call init_process_group here");
}

#endif

}  // namespace mccl_torch
