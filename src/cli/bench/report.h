// The results of `mccl bench` as values, and their text as a table, JSON and CSV.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench/bounds.h"
#include "cli/bench/routine.h"
#include "cli/bench/trial.h"
#include "mccl/context.h"
#include "mccl/types.h"

namespace mccl::cli::bench {

/// One half of a row: the call out of place, or the call in place.
struct Measurement {
  Timing timing;
  double algbw_gbs = 0;  ///< Size divided by time, in GB/s; 0 for a barrier.
  double busbw_gbs = 0;  ///< algbw_gbs times bus_factor().
  /// Number of wrong elements on all ranks; empty if the result was not checked.
  std::optional<std::uint64_t> wrong;
  /// Replaces `wrong` if sums may be rounded: the largest error of an element on any rank, relative
  /// to the largest expected magnitude.
  std::optional<double> error;
  std::string algorithm;           ///< Algorithm that ran; "messages" for sendrecv.
  std::optional<Overlap> overlap;  ///< Set with Options::overlap, except for a barrier.
};

/// Bytes that the busiest rank sends in one call, including frame headers and the bytes that it
/// writes to shared-memory windows: with the codec, and without a codec.
struct Sent {
  std::uint64_t rounded = 0;
  std::uint64_t exact = 0;
};

struct Row {
  Routine routine = Routine::all_reduce;
  CallSize shape;
  DType dtype = DType::f32;
  std::optional<ReduceKind> op;
  std::optional<int> root;
  /// A half is empty if the routine or the requested algorithm does not support it.
  std::optional<Measurement> out_of_place;
  std::optional<Measurement> in_place;
  std::optional<Sent> sent;  ///< Set if a codec may round the sums and `instead` is empty.
  /// The algorithm that ran in place of the requested one, if that does not support the row.
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
  bool shared_buffers = false;  ///< See Options.
};

struct Result {
  Setup setup;
  std::optional<Bounds> bounds;
  Costs costs;
  std::vector<Row> rows;
};

/// Number of elements in all rows that were found wrong.
std::uint64_t wrong_elements(const std::vector<Row>& rows);

// Parts of the printed table. Lines that begin with # are explanations; all other lines are rows.

std::string setup_text(const Setup& setup);
std::string bounds_text(const Bounds& bounds, int ranks);
/// "error" replaces "wrong" if `may_be_rounded` is true.
std::string heading(Routine routine, bool may_be_rounded = false);
std::string row_text(const Row& row);
/// Returns the calls that the requested algorithm does not support, separated by commas.
std::string calls_refused(const std::vector<Row>& rows);
/// Returns a title, and a line for each row with `sent`. Empty if no row has `sent`.
std::string sent_text(const std::vector<Row>& rows, std::string_view codec);
/// Returns a title, and a line for each half of a row with `overlap`. Empty if there is none.
std::string overlap_text(const std::vector<Row>& rows);

/// Returns one JSON object. Times are in microseconds, rates in GB/s. A figure that does not exist
/// is null.
std::string to_json(const Result& result);
/// Returns CSV: a heading, and a line for each half of a row (out of place and in place).
std::string to_csv(const Result& result);

}  // namespace mccl::cli::bench
