// Selects the instruction set that the kernels use, for tests and benchmarks.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/vector_targets.h"
// Highway's header must follow the choice of targets.
#include "hwy/highway.h"
#include "mccl/error.h"

namespace mccl::kernels {

inline std::vector<std::int64_t> available_targets() {
  std::vector<std::int64_t> targets;
  for (std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1)
    targets.push_back(left & -left);
  return targets;
}

inline void set_targets(std::int64_t mask) {
  hwy::SetSupportedTargetsForTest(mask);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

/// All instruction sets that this build contains and this machine can run, the best first.
inline std::vector<std::string_view> instruction_sets() {
  std::vector<std::string_view> names;
  for (const std::int64_t target : available_targets()) names.push_back(hwy::TargetName(target));
  return names;
}

/// Highway's name of the instruction set in use: "AVX2", "AVX3" (AVX-512), "NEON", "SCALAR", …
inline std::string_view instruction_set() { return instruction_sets().front(); }

/// Switches to one of instruction_sets(). An empty name restores the best. Every set gives the same
/// bits. Throws InvalidArgument if the name is not available.
inline void use_instruction_set(std::string_view name) {
  set_targets(0);
  if (name.empty()) return;
  for (const std::int64_t target : available_targets())
    if (hwy::TargetName(target) == name) return set_targets(target);
  throw InvalidArgument(fmt::format("instruction set '{}' is not available on this machine", name));
}

}  // namespace mccl::kernels
