#include "backend/mpi/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/mpi/engine.h"
#include "mccl/error.h"

namespace mccl::mpi {

std::string describe(const Request& request, std::uint64_t number) {
  const std::string_view name = name_of(request.collective);
  const std::size_t count = std::max(request.in.count, request.out.count);
  const std::string_view type = name_of(request.dtype);
  if (!is_collective(request.collective)) {
    return fmt::format("{} {} {} (tag {}, {} {})", name,
                       request.collective == Collective::send ? "to" : "from",
                       request.peer < 0 ? "any rank" : fmt::format("rank {}", request.peer),
                       request.tag, count, type);
  }
  std::string call = fmt::format("{} #{}", name, number);
  if (request.collective == Collective::barrier) return call;
  const std::string root = request.root >= 0 ? fmt::format(", root {}", request.root) : "";
  if (!reduces(request.collective)) return fmt::format("{} ({} {}{})", call, count, type, root);
  return fmt::format("{} ({} of {} {}{})", call, name_of(request.op.kind), count, type, root);
}

Call::Call(std::shared_ptr<Engine> its_engine, std::shared_ptr<GroupState> its_group,
           const Request& what)
    : group(std::move(its_group)),
      engine(std::move(its_engine)),
      counts_(what.counts.begin(), what.counts.end()),
      out_counts_(what.out_counts.begin(), what.out_counts.end()),
      request_(what) {
  request_.counts = counts_;
  request_.out_counts = out_counts_;
}

void Call::help(Clock::time_point until) {
  if (held_back) {
    throw InvalidArgument(
        fmt::format("{}: it begins when end_coalescing is called; wait for it after that",
                    name_of(request_.collective)));
  }
  engine->help(*this, until);
}

}  // namespace mccl::mpi
