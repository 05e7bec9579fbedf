// The results, as values from which the table and the files are made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/bounds.h"
#include "cli/bench/routine.h"
#include "cli/bench/timing.h"
#include "mccl/context.h"
#include "mccl/types.h"

namespace mccl::cli::bench {

/// One half of a row: the call out of place, or the call in place.
struct Measurement {
  Timing timing;
  double algbw_gbs = 0;  ///< Size over time, in GB/s; 0 for a barrier.
  double busbw_gbs = 0;  ///< Rate that the hardware must have moved, in GB/s.
  /// Number of wrong elements on all ranks; empty: not checked.
  std::optional<std::uint64_t> wrong;
  /// Replaces `wrong` if sums may be rounded: the largest error of an element on any rank, relative
  /// to the largest expected magnitude.
  std::optional<double> error;
  std::string algorithm;  ///< Algorithm that ran; "messages" for sendrecv.
};

/// Bytes that the busiest rank sends in one call, including frames and the bytes that pass through
/// windows.
struct Sent {
  std::uint64_t rounded = 0;
  std::uint64_t exact = 0;  ///< Bytes of the same call without a codec.
};

struct Row {
  Routine routine = Routine::all_reduce;
  Shape shape;
  DType dtype = DType::f32;
  std::optional<ReduceKind> op;
  std::optional<int> root;
  std::optional<Measurement> out_of_place;  ///< Empty if the routine has no such call.
  std::optional<Measurement> in_place;
  std::optional<Sent> sent;  ///< Set if sums may be rounded.
  /// If the requested algorithm does not support the call: the algorithm that ran instead. That
  /// half of the row was not measured. Empty if the requested one ran.
  std::string instead = {};
};

/// Conditions under which the figures were measured.
struct Setup {
  std::string version;
  std::string cpu;
  unsigned cores = 0;
  int ranks = 0;
  bool one_host = true;
  std::string transport;
  std::string algorithm;
  std::string compression = "none";
};

struct Result {
  Setup setup;
  std::optional<Bounds> bounds;
  Costs costs;
  std::vector<Row> rows;
};

/// Returns the number of wrong elements in all rows. Elements that were not checked count as right.
std::uint64_t wrong_elements(const std::vector<Row>& rows);

}  // namespace mccl::cli::bench
