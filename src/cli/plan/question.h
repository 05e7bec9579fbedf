// A call that could be made.
#pragma once

#include <cstddef>
#include <string>

#include "cli/bench/routine.h"
#include "mccl/compression.h"
#include "mccl/types.h"
#include "schedule/schedule.h"

namespace mccl::cli::plan {

struct Question {
  bench::Routine routine = bench::Routine::all_reduce;
  bench::Shape shape;
  DType dtype = DType::f32;
  ReduceKind op = ReduceKind::sum;  ///< Where it reduces.
  int ranks = 1;
  int nodes = 1;  ///< On which they lie.
  int root = 0;   ///< Where there is one.
  bool in_place = false;
  Compression compression;  ///< Between nodes, where the call may be rounded.
};

/// sendrecv has none: it is no collective.
bool has_schedule(bench::Routine routine);

std::size_t element_bytes(const Question& question);

/// As `rank` asks it.
schedule::Problem problem_of(const Question& question, int rank);

}  // namespace mccl::cli::plan
