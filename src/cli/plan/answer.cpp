#include "cli/plan/answer.h"

#include <algorithm>
#include <set>

#include "base/coding.h"
#include "cli/kit/quantity.h"
#include "mccl/config.h"
#include "schedule/choose.h"
#include "schedule/layout.h"

namespace mccl::cli::plan {
namespace {

using bench::Routine;
using schedule::StepKind;

Collective collective_of(Routine routine) {
  switch (routine) {
    case Routine::all_reduce:
      return Collective::all_reduce;
    case Routine::all_gather:
      return Collective::all_gather;
    case Routine::reduce_scatter:
      return Collective::reduce_scatter;
    case Routine::all_to_all:
      return Collective::all_to_all;
    case Routine::broadcast:
      return Collective::broadcast;
    case Routine::reduce:
      return Collective::reduce;
    case Routine::gather:
      return Collective::gather;
    case Routine::scatter:
      return Collective::scatter;
    case Routine::barrier:
      return Collective::barrier;
    case Routine::sendrecv:
      break;
  }
  return Collective::send;
}

/// Maximum numbers of steps to build, for one rank and in total. Building them takes a fraction of
/// a second.
constexpr double kMostStepsOfRank = 1e5;
constexpr double kMostSteps = 2e5;

void take_most(std::size_t& most, std::size_t value) { most = std::max(most, value); }

void add(Traffic& most, const schedule::Problem& problem, std::size_t element_bytes,
         const schedule::Schedule& built) {
  const std::size_t neighbours = schedule::node_members(problem, problem.rank).size() - 1;
  Traffic mine;
  for (const schedule::Step& step : built.steps) {
    const std::size_t given = byte_count(step.src, element_bytes, problem.coding);
    const std::size_t taken = byte_count(step.dst, element_bytes, problem.coding);
    if (step.kind == StepKind::send) mine.sent += given;
    if (step.kind == StepKind::recv || step.kind == StepKind::recv_reduce) mine.received += taken;
    if (step.kind == StepKind::publish) mine.published += given;
    if (step.kind == StepKind::read) mine.read += taken;
    if (step.kind == StepKind::read_fold) mine.read += neighbours * taken;
  }
  take_most(most.steps, built.steps.size());
  take_most(most.sent, mine.sent);
  take_most(most.received, mine.received);
  take_most(most.published, mine.published);
  take_most(most.read, mine.read);
  ++most.ranks;
}

/// Returns all ranks in the order in which their schedules are built: the root, which often has the
/// most steps, then ranks around it, then all others.
std::vector<int> order_of_interest(int ranks, int root) {
  std::vector<int> order;
  std::set<int> seen;
  const auto visit = [&](int rank) {
    if (seen.insert(rank).second) order.push_back(rank);
  };
  for (const int distance : {0, 1, ranks - 1, ranks / 2}) visit((root + distance) % ranks);
  for (int rank = 0; rank < ranks; ++rank) visit(rank);
  return order;
}

std::optional<Traffic> traffic_of(const Answer& answer, const schedule::Facts& facts) {
  if (answer.estimated_steps > kMostStepsOfRank) return {};
  const Question& question = answer.question;
  Traffic traffic;
  double steps = 0;
  for (const int rank : order_of_interest(question.ranks, question.root)) {
    const schedule::Problem problem = chosen_problem(question, rank, answer.choice, facts);
    const schedule::Schedule built = schedule::build(answer.choice.algorithm, problem);
    add(traffic, problem, element_bytes(question), built);
    // Even a short schedule takes time to set up if there are many ranks.
    steps += static_cast<double>(built.steps.size() + static_cast<std::size_t>(question.ranks));
    if (steps > kMostSteps) break;
  }
  return traffic;
}

}  // namespace

bool has_schedule(Routine routine) { return routine != Routine::sendrecv; }

std::size_t element_bytes(const Question& question) {
  return question.routine == Routine::barrier ? 1 : size_of(question.dtype);
}

schedule::Problem problem_of(const Question& question, int rank) {
  const bench::RoutineInfo& info = bench::info_of(question.routine);
  schedule::Problem problem;
  problem.collective = collective_of(question.routine);
  problem.rank = rank;
  problem.size = question.ranks;
  if (info.rooted) problem.root = question.root;
  if (info.in_parts) {
    problem.counts.assign(static_cast<std::size_t>(question.ranks), question.shape.part);
  } else {
    problem.count = question.shape.total;
  }
  if (question.routine == Routine::all_to_all) {
    problem.recv_counts = problem.counts;
    problem.even = true;
  }
  // In a rooted call, only the root has both an input and an output.
  problem.in_place = question.in_place && (!info.rooted || rank == question.root);
  if (!info.out_of_place) problem.in_place = true;
  if (!info.in_place) problem.in_place = false;
  if (may_be_coded(problem.collective, question.dtype, question.op)) {
    const Coding coding = coding_of(question.compression, question.nodes);
    const bool large = question.shape.bytes >= Config().compression_min_bytes;
    if (large && question.nodes > 1 && shortens(coding, question.dtype)) problem.coding = coding;
  }
  return problem;
}

double Answer::chunk_bytes() const {
  return static_cast<double>(choice.chunk) * static_cast<double>(element_bytes(question));
}

double Answer::algbw_gbs() const {
  return static_cast<double>(question.shape.bytes) / std::max(choice.predicted_s, 1e-12) / 1e9;
}

double Answer::busbw_gbs() const {
  return algbw_gbs() * bench::bus_factor(question.routine, question.ranks);
}

schedule::Choice choose(const Question& question, const schedule::Facts& facts) {
  return schedule::choose(problem_of(question, 0), element_bytes(question), facts);
}

bool compresses(const Question& question, const schedule::Facts& facts) {
  if (!question.compression.if_faster) return true;
  const schedule::Problem problem = problem_of(question, 0);
  return question.dtype == DType::f32 && problem.coding &&
         schedule::is_faster_coded(problem, element_bytes(question), facts);
}

Answer answer(const Question& question, const schedule::Facts& facts) {
  Answer found;
  found.question = question;
  found.choice = choose(question, facts);
  schedule::Estimator estimator(found.choice.algorithm,
                                chosen_problem(question, 0, found.choice, facts),
                                element_bytes(question), facts);
  found.estimated_steps = estimator.at(found.choice.chunk).steps;
  found.traffic = traffic_of(found, facts);
  return found;
}

std::vector<schedule::Choice> alternatives(const Question& question, const schedule::Facts& asked) {
  schedule::Facts facts = asked;
  const schedule::Problem problem =
      schedule::placed(problem_of(question, 0), element_bytes(question), facts);
  std::vector<schedule::Choice> found;
  for (int i = 0; i < schedule::kAlgorithmCount; ++i) {
    facts.forced = static_cast<schedule::Algorithm>(i);
    if (schedule::can(*facts.forced, problem)) found.push_back(choose(question, facts));
  }
  std::ranges::stable_sort(found, {}, &schedule::Choice::predicted_s);
  return found;
}

schedule::Problem chosen_problem(const Question& question, int rank, const schedule::Choice& choice,
                                 const schedule::Facts& facts) {
  schedule::Problem problem =
      schedule::placed(problem_of(question, rank), element_bytes(question), facts);
  problem.chunk = choice.chunk;
  return problem;
}

}  // namespace mccl::cli::plan
