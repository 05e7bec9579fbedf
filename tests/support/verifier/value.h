// The values in memory during a symbolic run.
#pragma once

#include <cstddef>
#include <vector>

#include "support/verifier/expressions.h"
#include "support/verifier/run_map.h"

namespace mccl::schedule {

/// The value of a range of memory. The n-th element of the range combines element `element` + n of
/// each contributing rank.
struct Value {
  Expressions::Id expression = Expressions::kNothing;
  bool completed = false;
  std::size_t element = 0;

  Value advanced(std::size_t n) const { return {expression, completed, element + n}; }
};

using Memory = RunMap<Value>;
using Runs = std::vector<Memory::Run>;

}  // namespace mccl::schedule
