#include "cli/plan/question.h"

#include "base/coding.h"
#include "mccl/config.h"

namespace mccl::cli::plan {
namespace {

using bench::Routine;

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

}  // namespace mccl::cli::plan
