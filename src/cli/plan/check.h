// Compares the predictions of the cost model with the measurements of `mccl bench`.
#pragma once

#include <string>
#include <vector>

#include "cli/plan/answer.h"
#include "schedule/choose.h"

namespace mccl::cli::plan {

struct MeasuredRow {
  Question question;
  double time_us = 0;  ///< Measured mean time of a call on the slowest rank.
  double p50_us = 0;
};

struct MeasuredRun {
  int ranks = 1;
  std::string transport;
  schedule::Facts facts;
  std::vector<MeasuredRow> rows;
};

/// Parses the text of a JSON file of `mccl bench`. Omits rows of sendrecv, which has no schedule.
/// Throws InvalidArgument if the text is invalid; the message contains `origin`, the file's path.
MeasuredRun parse_run(const std::string& text, const std::string& origin);

struct Comparison {
  MeasuredRow row;
  schedule::Choice choice;

  /// Difference of the prediction from the measured time, in per cent of the measured time.
  double deviation() const;
};

std::vector<Comparison> compare(const MeasuredRun& run);

/// Returns a table, and a line that says how many rows are within `tolerance` per cent.
std::string comparison_text(const MeasuredRun& run, const std::vector<Comparison>& comparisons,
                            double tolerance);
std::string comparison_json(const MeasuredRun& run, const std::vector<Comparison>& comparisons);

/// Returns the number of rows that deviate by more than `tolerance` per cent.
std::size_t count_outside(const std::vector<Comparison>& comparisons, double tolerance);

}  // namespace mccl::cli::plan
