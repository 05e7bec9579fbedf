// A call for which a plan is made.
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
  ReduceKind op = ReduceKind::sum;  ///< Used if the routine reduces.
  int ranks = 1;
  int nodes = 1;  ///< Number of nodes that hold the ranks.
  int root = 0;   ///< Used if the routine has a root.
  bool in_place = false;
  Compression compression;  ///< Used between nodes, if the result of the call may be rounded.
};

/// False for sendrecv, which is not a collective.
bool has_schedule(bench::Routine routine);

std::size_t element_bytes(const Question& question);

/// Returns the problem from the point of view of `rank`.
schedule::Problem problem_of(const Question& question, int rank);

}  // namespace mccl::cli::plan
