// A call for which a plan is made, and the prediction of its schedule, traffic and time.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/bench/routine.h"
#include "mccl/compression.h"
#include "mccl/types.h"
#include "schedule/choose.h"
#include "schedule/schedule.h"

namespace mccl::cli::plan {

struct Question {
  bench::Routine routine = bench::Routine::all_reduce;
  bench::CallSize shape;
  DType dtype = DType::f32;
  ReduceKind op = ReduceKind::sum;  ///< Used if the routine reduces.
  int ranks = 1;
  int nodes = 1;  ///< Number of nodes that hold the ranks.
  int root = 0;   ///< Used if the routine has a root.
  bool in_place = false;
  Compression compression;  ///< Codec between nodes, used if the result of the call may be rounded.
};

/// False for sendrecv, which is not a collective.
inline bool has_schedule(bench::Routine routine) { return routine != bench::kSendrecv; }

std::size_t element_bytes(const Question& question);

/// The call as the scheduling problem of `rank`, without a chunk size.
schedule::Problem problem_of(const Question& question, int rank);

/// Steps and traffic of the busiest ranks: each member except `ranks` is the maximum over the ranks
/// whose schedules were built.
struct PlannedTraffic {
  std::size_t steps = 0;
  std::size_t sent = 0;       ///< Bytes sent through links.
  std::size_t received = 0;   ///< Bytes received through links.
  std::size_t published = 0;  ///< Bytes written into the rank's shared-memory window.
  std::size_t read = 0;       ///< Bytes read from the windows of other ranks on the node.
  int ranks = 0;              ///< Number of ranks whose schedules were built.
};

struct Answer {
  Question question;
  schedule::Choice choice;
  double estimated_steps = 0;
  /// Empty if building the schedules would take too long.
  std::optional<PlannedTraffic> traffic;

  double chunk_bytes() const;
  double algbw_gbs() const;  ///< Size divided by predicted time, in GB/s; 0 for a barrier.
  double busbw_gbs() const;
};

/// Compression::if_faster applies only to f32 sums that it is predicted to speed up.
bool compresses(const Question& question, const schedule::Facts& facts);

Answer answer(const Question& question, const schedule::Facts& facts);

/// Returns the same choice as answer(), but builds no schedules.
schedule::Choice choose(const Question& question, const schedule::Facts& facts);

/// Returns every algorithm that can do the call, each with its best chunk size, cheapest first.
std::vector<schedule::Choice> alternatives(const Question& question, const schedule::Facts& facts);

/// The problem, with the chunk size of `choice`, from which `rank`'s schedule is built.
schedule::Problem chosen_problem(const Question& question, int rank, const schedule::Choice& choice,
                                 const schedule::Facts& facts);

/// Lines of the table that begin with # are explanations; all other lines are rows.
std::string heading(bench::Routine routine);
std::string row_text(const Answer& answer);
/// A line for each alternative, for display below the row. The chosen algorithm is marked.
std::string alternatives_text(const Answer& answer, std::span<const schedule::Choice> others);

std::string bytes_text(double bytes);

/// Times are in microseconds, rates in GB/s. Fields that do not apply, or were not computed, are
/// null.
nlohmann::ordered_json row_json(const Answer& answer,
                                std::span<const schedule::Choice> alternatives);

std::string to_json(const schedule::Facts& facts, int ranks, nlohmann::ordered_json rows);

}  // namespace mccl::cli::plan
