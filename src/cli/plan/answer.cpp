#include "cli/plan/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/coding.h"
#include "cli/bench/report.h"
#include "cli/kit/quantity.h"
#include "cli/plan/facts.h"
#include "mccl/config.h"
#include "schedule/layout.h"

namespace mccl::cli::plan {
namespace {

using bench::Routine;
using schedule::StepKind;

/// Limits that keep the time to build schedules below a second. None is built if a rank would have
/// more than kMostStepsOfRank steps; no further one is built after kMostSteps steps in total.
constexpr double kMostStepsOfRank = 1e5;
constexpr double kMostSteps = 2e5;

void add(PlannedTraffic& most, const schedule::Problem& problem, std::size_t element_bytes,
         const schedule::Schedule& built) {
  const std::size_t neighbours = schedule::node_members(problem, problem.rank).size() - 1;
  PlannedTraffic mine;
  for (const schedule::Step& step : built.steps) {
    const std::size_t given = byte_count(step.src, element_bytes, problem.coding);
    const std::size_t taken = byte_count(step.dst, element_bytes, problem.coding);
    if (step.kind == StepKind::send) mine.sent += given;
    if (step.kind == StepKind::recv || step.kind == StepKind::recv_reduce) mine.received += taken;
    if (step.kind == StepKind::publish) mine.published += given;
    if (step.kind == StepKind::read) mine.read += taken;
    if (step.kind == StepKind::read_fold) mine.read += neighbours * taken;
  }
  mine.steps = built.steps.size();
  for (const auto member :
       {&PlannedTraffic::steps, &PlannedTraffic::sent, &PlannedTraffic::received,
        &PlannedTraffic::published, &PlannedTraffic::read})
    most.*member = std::max(most.*member, mine.*member);
  ++most.ranks;
}

/// First the root, which often has the most steps, then the ranks next to it and opposite it.
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

std::optional<PlannedTraffic> traffic_of(const Answer& answer, const schedule::Facts& facts) {
  if (answer.estimated_steps > kMostStepsOfRank) return {};
  const Question& question = answer.question;
  PlannedTraffic traffic;
  double steps = 0;
  for (const int rank : order_of_interest(question.ranks, question.root)) {
    const schedule::Problem problem = chosen_problem(question, rank, answer.choice, facts);
    const schedule::Schedule built = schedule::build(answer.choice.algorithm, problem);
    add(traffic, problem, element_bytes(question), built);
    // The number of ranks is added for each schedule, because with many ranks even a short schedule
    // takes time to set up.
    steps += static_cast<double>(built.steps.size() + static_cast<std::size_t>(question.ranks));
    if (steps > kMostSteps) break;
  }
  return traffic;
}

using Json = nlohmann::ordered_json;

constexpr const char* kNone = "-";
/// An alternative counts as cheaper below this share of the chosen algorithm's time.
constexpr double kCheaper = 0.999;

constexpr const char* kColumns =
    "{:>11} {:>11}  {:<18} {:>6} {:>7} {:>9} {:>9} {:>9} {:>9} {:>10} {:>7} {:>7}\n";

/// "left out" marks an alternative that was not chosen although it is predicted to be faster.
std::string_view standing_of(const schedule::Choice& other, const schedule::Choice& chosen) {
  if (other.algorithm == chosen.algorithm) return "chosen";
  return other.predicted_s < kCheaper * chosen.predicted_s ? "left out" : "";
}

Json choice_json(const schedule::Choice& choice, std::size_t element_bytes) {
  return {{"algorithm", schedule::name_of(choice.algorithm)},
          {"chunk_bytes", choice.chunk * element_bytes},
          {"time_us", choice.predicted_s * 1e6}};
}

}  // namespace

std::size_t element_bytes(const Question& question) {
  return question.routine == Routine::barrier ? 1 : size_of(question.dtype);
}

schedule::Problem problem_of(const Question& question, int rank) {
  const bench::RoutineInfo& info = bench::info_of(question.routine);
  schedule::Problem problem;
  problem.collective = question.routine;
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

std::string bytes_text(double bytes) {
  if (bytes < 1e18) return text_of_size(static_cast<std::size_t>(bytes));
  return fmt::format("{:.2g}", bytes);
}

std::string heading(bench::Routine routine) {
  std::string names = fmt::format(kColumns, "size", "count", "algorithm", "chunk", "steps", "sent",
                                  "received", "published", "read", "time", "algbw", "busbw");
  std::string units =
      fmt::format(kColumns, "B", "elements", "", "B", "", "B", "B", "B", "B", "us", "GB/s", "GB/s");
  names.front() = units.front() = '#';
  return fmt::format("#\n# {}\n{}{}", bench::info_of(routine).name, names, units);
}

std::string row_text(const Answer& answer) {
  const Question& question = answer.question;
  const auto& traffic = answer.traffic;
  const bool moves_bytes = question.shape.bytes > 0;
  const auto bytes = [&](std::size_t PlannedTraffic::*field) {
    return traffic ? bytes_text(static_cast<double>((*traffic).*field)) : kNone;
  };
  return fmt::format(
      kColumns, question.shape.bytes, question.shape.part,
      schedule::name_of(answer.choice.algorithm), bytes_text(answer.chunk_bytes()),
      traffic ? fmt::format("{}", traffic->steps) : fmt::format("~{:.0f}", answer.estimated_steps),
      bytes(&PlannedTraffic::sent), bytes(&PlannedTraffic::received),
      bytes(&PlannedTraffic::published), bytes(&PlannedTraffic::read),
      number_text(answer.choice.predicted_s * 1e6),
      moves_bytes ? rate_text(answer.algbw_gbs()) : kNone,
      moves_bytes ? rate_text(answer.busbw_gbs()) : kNone);
}

std::string alternatives_text(const Answer& answer, std::span<const schedule::Choice> others) {
  std::string text;
  const auto element = static_cast<double>(element_bytes(answer.question));
  for (const schedule::Choice& other : others) {
    text += fmt::format(kColumns, "", standing_of(other, answer.choice),
                        schedule::name_of(other.algorithm),
                        bytes_text(static_cast<double>(other.chunk) * element), "", "", "", "", "",
                        number_text(other.predicted_s * 1e6), "", "");
    text.erase(text.find_last_not_of(" \n") + 1);
    text += "\n";
  }
  return text;
}

Json row_json(const Answer& answer, std::span<const schedule::Choice> alternatives) {
  const Question& question = answer.question;
  const bench::RoutineInfo& info = bench::info_of(question.routine);
  const bool moves_bytes = question.shape.bytes > 0;
  const auto& traffic = answer.traffic;
  Json row = {{"collective", info.name},
              {"bytes", question.shape.bytes},
              {"count", question.shape.part},
              {"dtype", moves_bytes ? Json(name_of(question.dtype)) : Json(nullptr)},
              {"op", info.reduces ? Json(name_of(question.op)) : Json(nullptr)},
              {"root", info.rooted ? Json(question.root) : Json(nullptr)},
              {"in_place", problem_of(question, question.root).in_place}};
  row.update(choice_json(answer.choice, element_bytes(question)));
  row["algbw"] = moves_bytes ? Json(answer.algbw_gbs()) : Json(nullptr);
  row["busbw"] = moves_bytes ? Json(answer.busbw_gbs()) : Json(nullptr);
  row["steps"] = traffic ? Json(traffic->steps) : Json(std::round(answer.estimated_steps));
  row["steps_are_estimated"] = !traffic;
  const auto bytes = [&](std::size_t PlannedTraffic::*field) {
    return traffic ? Json((*traffic).*field) : Json(nullptr);
  };
  row["sent_bytes"] = bytes(&PlannedTraffic::sent);
  row["received_bytes"] = bytes(&PlannedTraffic::received);
  row["published_bytes"] = bytes(&PlannedTraffic::published);
  row["read_bytes"] = bytes(&PlannedTraffic::read);
  if (alternatives.empty()) return row;
  row["alternatives"] = Json::array();
  for (const schedule::Choice& other : alternatives)
    row["alternatives"].push_back(choice_json(other, element_bytes(question)));
  return row;
}

std::string to_json(const schedule::Facts& facts, int ranks, Json rows) {
  const Json json = {{"version", MCCL_VERSION},
                     {"ranks", ranks},
                     {"costs", facts_json(facts)},
                     {"rows", std::move(rows)}};
  return json.dump(1) + "\n";
}

}  // namespace mccl::cli::plan
