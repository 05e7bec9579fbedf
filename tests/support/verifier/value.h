// What memory holds in a symbolic run.
#pragma once

#include <cstddef>
#include <vector>

#include "support/verifier/expressions.h"
#include "support/verifier/run_map.h"

namespace mccl::schedule {

/// What a stretch of memory holds: its n-th element is made of the contributing ranks' elements
/// `element` + n.
struct Value {
  Expressions::Id expression = Expressions::kNothing;
  bool completed = false;
  std::size_t element = 0;

  Value advanced(std::size_t n) const { return {expression, completed, element + n}; }
};

using Memory = RunMap<Value>;
using Runs = std::vector<Memory::Run>;

}  // namespace mccl::schedule
