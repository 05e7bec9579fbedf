#include "engine/call.h"

#include <fmt/format.h>

namespace mccl::engine {
namespace {

bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter;
}

}  // namespace

bool Call::matches(const Call& other) const {
  return collective == other.collective && dtype == other.dtype && root == other.root &&
         count == other.count && (!reduces(collective) || kind == other.kind);
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
    default:
      break;
  }
  const std::string what =
      reduces(call.collective)
          ? fmt::format("{} of {} {}", name_of(call.kind), call.count, name_of(call.dtype))
          : fmt::format("{} {}", call.count, name_of(call.dtype));
  const std::string root = call.root >= 0 ? fmt::format(", root {}", call.root) : "";
  return fmt::format("{} #{} ({}{})", name, call.sequence, what, root);
}

bool valid_types(std::uint8_t collective, std::uint8_t dtype, std::uint8_t kind) {
  return collective < kCollectiveCount && dtype < kDTypeCount && kind < kReduceKindCount;
}

}  // namespace mccl::engine
