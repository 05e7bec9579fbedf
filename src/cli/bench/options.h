// Options of a run of `mccl bench`. The same on every rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench/routine.h"
#include "mccl/types.h"

namespace mccl::cli::bench {

struct Options {
  std::vector<Routine> routines;
  std::vector<std::size_t> sizes;
  DType dtype = DType::f32;
  ReduceOp op;
  int root = 0;
  bool check = true;
  bool bounds = true;
  double seconds = 0.2;          ///< Time to spend on each half of a row.
  std::uint64_t iterations = 0;  ///< Number of timed calls; 0: as many as `seconds` allows.
  std::uint64_t warmup = 5;
  std::string json;  ///< Path of the JSON file to write; empty: none. `csv` likewise.
  std::string csv;
};

}  // namespace mccl::cli::bench
