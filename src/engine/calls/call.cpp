#include "engine/calls/call.h"

#include <fmt/format.h>

#include <algorithm>

namespace mccl::engine {

bool Call::matches(const Call& other) const {
  return collective == other.collective && dtype == other.dtype && root == other.root &&
         count == other.count && counts_hash == other.counts_hash &&
         coding.codec == other.coding.codec && coding.kept == other.coding.kept &&
         (!reduces(*this) || kind == other.kind);
}

std::uint64_t hash_of(std::span<const std::size_t> counts) {
  const auto differs = [&counts](std::size_t count) { return count != counts.front(); };
  if (std::none_of(counts.begin(), counts.end(), differs)) return 0;
  std::uint64_t hash = counts.size();
  for (const std::size_t count : counts) {
    hash = (hash ^ count) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return std::max(hash, kOwnCounts + 1);
}

std::string describe(const Call& call) {
  const std::string_view name = name_of(call.collective);
  switch (call.collective) {
    case Collective::send:
    case Collective::recv:
      return fmt::format("{} {} {} (tag {}, {} {})", name,
                         call.collective == Collective::send ? "to" : "from",
                         call.peer < 0 ? "any rank" : fmt::format("rank {}", call.peer), call.tag,
                         call.count, name_of(call.dtype));
    case Collective::barrier:
      return fmt::format("{} #{}", name, call.sequence);
    case Collective::all_to_all:
      if (call.counts_hash != kOwnCounts) break;
      return fmt::format("{} #{} ({}, counts per rank)", name, call.sequence, name_of(call.dtype));
    default:
      break;
  }
  const std::string what = reduces(call) ? fmt::format("{} of {} {}", name_of(call.kind),
                                                       call.count, name_of(call.dtype))
                                         : fmt::format("{} {}", call.count, name_of(call.dtype));
  const std::string how =
      call.coding ? fmt::format(", in {}", describe(call.coding)) : std::string();
  const std::string root = call.root >= 0 ? fmt::format(", root {}", call.root) : "";
  return fmt::format("{} #{} ({}{}{})", name, call.sequence, what, how, root);
}

std::string describe_unlike(const Call& call, const Call& expected) {
  const std::string text = describe(call);
  return text == describe(expected) ? text + " with different counts per rank" : text;
}

}  // namespace mccl::engine
