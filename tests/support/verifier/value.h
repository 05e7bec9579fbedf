// The values in memory during a symbolic run.
#pragma once

#include <cstddef>
#include <vector>

#include "support/verifier/expressions.h"
#include "support/verifier/run_map.h"

namespace mccl::schedule {

/// The value of a stretch of memory. Its n-th element combines element `element` + n of each
/// contributing rank.
struct Value {
  Expressions::Id expression = Expressions::kNothing;
  bool completed = false;
  std::size_t element = 0;

  Value advanced(std::size_t n) const { return {expression, completed, element + n}; }
};

using Memory = RunMap<Value>;
using Runs = std::vector<Memory::Run>;

}  // namespace mccl::schedule
