// The functions of ProcessGroupMCCL that create new groups from some of the group's ranks.
#include <algorithm>
#include <set>
#include <utility>

#include "backend.h"
#include "mccl/error.h"

namespace mccl_torch {
namespace {

/// Value of SHRINK_ABORT of torch.distributed: pending calls of the old group are aborted.
constexpr int kShrinkAbort = 1;

}  // namespace

/// Lets the groups of a split reuse this group's device path. All ranks must call it; a rank that
/// is in none of the new groups passes null.
void ProcessGroupMCCL::split_on_devices(mccl::Group* child, int color, int key) {
  group_for("split")->split_path(child, color, key);
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupMCCL::split(
    const c10::intrusive_ptr<c10d::Store>& /*store*/, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  group_for("split");
  // Every rank counts every split, even a split whose new group does not contain the rank, so that
  // the ranks agree on names.
  const std::uint64_t number = splits_++;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size_) {
      invalid_argument("split",
                       c10::str("invalid rank ", rank, " (expected 0 to ", size_ - 1, ")"));
    }
  }
  const auto own_place = std::find(ranks.begin(), ranks.end(), rank_);
  if (own_place == ranks.end()) {
    split_on_devices(nullptr, -1, 0);
    return {};
  }
  const auto split = [&](mccl::Group& child) {
    split_on_devices(&child, ranks.front(), static_cast<int>(own_place - ranks.begin()));
  };
  return make_child("split", c10::str(name_, "/split", number, ".", ranks.front()), ranks, opts,
                    split);
}

/// Makes the backend of a group that consists of some ranks of this group, and runs `prepare` on
/// the new group. Error messages contain `call`.
c10::intrusive_ptr<c10d::Backend> ProcessGroupMCCL::make_child(
    const char* call, const std::string& name, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts,
    const std::function<void(mccl::Group&)>& prepare) {
  BackendParts child;
  {
    const std::lock_guard lock(mutex_);
    child.context = membership_.context;
    for (const int rank : ranks) {
      child.members.push_back(membership_.members[static_cast<std::size_t>(rank)]);
      child.global_ranks.push_back(membership_.global_ranks[static_cast<std::size_t>(rank)]);
    }
  }
  child.timeout = opts ? opts->timeout : timeout_.load();
  child.compression = membership_.compression;
  const auto* const own = dynamic_cast<const Options*>(opts.get());
  try {
    if (own && (own->compression || own->topk_ratio)) {
      const mccl::Config& usual = child.context->config();
      child.compression = mccl::compression_named(own->compression.value_or(usual.compression),
                                                  own->topk_ratio.value_or(usual.topk_ratio));
      if (own->topk_ratio) require_topk(*child.compression);
    }
    child.group = child.context->group(name, child.members, child.timeout, child.compression);
    if (prepare) prepare(*child.group);
  } catch (const std::exception&) {
    throw_torch_error(std::current_exception(), rank_, call);
  }
  auto backend = c10::make_intrusive<ProcessGroupMCCL>(std::move(child));
  if (opts) backend->options_->group_name = opts->group_name;
  return c10::static_intrusive_pointer_cast<c10d::Backend>(std::move(backend));
}

/// Creates the new group without messages between the ranks, because all remaining ranks pass the
/// same list. The name of the new group contains no number: torch provides no number, and a program
/// may shrink a group only once, because torch destroys the old group.
c10::intrusive_ptr<c10d::Backend> ProcessGroupMCCL::shrink(
    const std::vector<std::int64_t>& ranks_to_exclude, int shrink_flags,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  const std::set<std::int64_t> excluded(ranks_to_exclude.begin(), ranks_to_exclude.end());
  for (const std::int64_t rank : excluded) {
    if (rank < 0 || rank >= size_)
      invalid_argument("shrink",
                       c10::str("invalid rank ", rank, " (expected 0 to ", size_ - 1, ")"));
    if (rank == rank_)
      invalid_argument("shrink", c10::str("rank ", rank,
                                          " excludes itself; only ranks that stay "
                                          "in the group call shrink_group"));
  }
  if (shrink_flags == kShrinkAbort) abort();
  std::vector<int> rest;
  for (int rank = 0; rank < size_; ++rank) {
    if (!excluded.contains(rank)) rest.push_back(rank);
  }
  return make_child("shrink", c10::str(name_, "/shrink without ", ranks_to_exclude), rest, opts);
}

}  // namespace mccl_torch
