#include "support/verifier/describe.h"

#include <fmt/format.h>

namespace mccl::schedule {

std::string describe(const Region& region) {
  static constexpr const char* kNames[] = {"input", "output", "scratch", "coded", "sums"};
  return fmt::format("{}[{}..{})", kNames[static_cast<int>(region.space)], region.offset,
                     region.offset + region.count);
}

std::string describe(const Step& step) {
  switch (step.kind) {
    case StepKind::send:
      return fmt::format("send {} to rank {}", describe(step.src), step.peer);
    case StepKind::recv:
      return fmt::format("receive {} from rank {}", describe(step.dst), step.peer);
    case StepKind::recv_reduce:
      return fmt::format("{} = {} op what comes from rank {}", describe(step.dst),
                         describe(step.src), step.peer);
    case StepKind::copy:
      return fmt::format("{} = {}", describe(step.dst), describe(step.src));
    case StepKind::fold:
      return fmt::format("{} = fold of {} in {}", describe(step.dst), step.operands,
                         describe(step.src));
    case StepKind::encode:
      return fmt::format("encode {} to {}", describe(step.src), describe(step.dst));
    case StepKind::decode:
      return fmt::format("decode {} to {}", describe(step.src), describe(step.dst));
    case StepKind::fold_coded:
      return fmt::format("{} = fold of {} in {}", describe(step.dst), step.operands,
                         describe(step.src));
    case StepKind::publish:
      return fmt::format("publish {} at {}", describe(step.src), step.window);
    case StepKind::arrive:
      return "arrive";
    case StepKind::await:
      return fmt::format("wait for arrival {} of {}", step.mark,
                         step.peer == kAllPeers ? "all" : fmt::format("rank {}", step.peer));
    case StepKind::await_readers:
      return fmt::format("wait for arrival {} of all readers", step.mark);
    case StepKind::read:
      return fmt::format("{} = what rank {} published at {}, from {}", describe(step.dst),
                         step.peer, step.window, describe(step.src));
    case StepKind::read_fold:
      return fmt::format("{} = fold of {} and what the node published at {}", describe(step.dst),
                         describe(step.src), step.window);
  }
  return "unknown";
}

}  // namespace mccl::schedule
