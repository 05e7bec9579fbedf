#include "kernels/instruction_set.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "kernels/vector_targets.h"
// Highway's header must follow the choice of targets.
#include "hwy/highway.h"
#include "mccl/error.h"

namespace mccl::kernels {
namespace {

std::vector<std::int64_t> available_targets() {
  std::vector<std::int64_t> targets;
  for (std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    targets.push_back(left & -left);
  }
  return targets;
}

void set_targets(std::int64_t mask) {
  hwy::SetSupportedTargetsForTest(mask);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace

std::string_view instruction_set() { return instruction_sets().front(); }

std::vector<std::string_view> instruction_sets() {
  std::vector<std::string_view> names;
  for (const std::int64_t target : available_targets()) names.push_back(hwy::TargetName(target));
  return names;
}

void use_instruction_set(std::string_view name) {
  set_targets(0);
  if (name.empty()) return;
  for (const std::int64_t target : available_targets()) {
    if (hwy::TargetName(target) == name) return set_targets(target);
  }
  std::string available;
  for (const std::string_view known : instruction_sets()) available.append(" ").append(known);
  throw InvalidArgument(fmt::format(
      "instruction set '{}' is not available on this machine; available are:{}", name, available));
}

}  // namespace mccl::kernels
