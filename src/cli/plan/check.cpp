#include "cli/plan/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/value_text.h"
#include "cli/bench/report.h"
#include "cli/flags.h"
#include "cli/kit/quantity.h"
#include "cli/plan/facts.h"
#include "cluster/text.h"
#include "mccl/error.h"

namespace mccl::cli::plan {
namespace {

using bench::Routine;
using nlohmann::json;

constexpr std::uint64_t kLargestSize = std::uint64_t{1} << 40;

[[noreturn]] void refuse(std::string_view where, std::string_view key, std::string_view expected) {
  throw InvalidArgument(
      fmt::format("{}: {} is not {}; give a JSON file of mccl bench", where, key, expected));
}

const json& member(const json& object, const char* key, std::string_view where) {
  if (!object.is_object() || !object.contains(key)) refuse(where, key, "present");
  return object[key];
}

double number(const json& object, const char* key, std::string_view where) {
  const json& value = member(object, key, where);
  if (!value.is_number() || value.get<double>() < 0) refuse(where, key, "a number of at least 0");
  return value.get<double>();
}

std::uint64_t integer(const json& object, const char* key, std::uint64_t most,
                      std::string_view where) {
  const json& value = member(object, key, where);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most)
    refuse(where, key, fmt::format("an integer up to {}", most));
  return value.get<std::uint64_t>();
}

std::string text(const json& object, const char* key, std::string_view where) {
  const json& value = member(object, key, where);
  if (!value.is_string()) refuse(where, key, "text");
  return value.get<std::string>();
}

MeasuredRow row_of(const json& object, int ranks, const std::string& where) {
  const std::string name = text(object, "collective", where);
  const std::string_view names[] = {name};
  MeasuredRow row;
  row.time_us = number(object, "time_us", where);
  row.p50_us = number(object, "p50_us", where);
  Question& question = row.question;
  const std::vector<Routine> routines = bench::parse_routines(names);
  if (routines.size() != 1) refuse(where, "collective", "one collective");
  question.routine = routines[0];
  question.ranks = ranks;
  const bench::RoutineInfo& info = bench::info_of(question.routine);
  if (info.rooted)
    question.root =
        static_cast<int>(integer(object, "root", static_cast<std::uint64_t>(ranks) - 1, where));
  if (question.routine == Routine::barrier) return row;
  const json& in_place = member(object, "in_place", where);
  if (!in_place.is_boolean()) refuse(where, "in_place", "true or false");
  question.in_place = in_place.get<bool>();
  question.dtype = kind_of<DType>(where, text(object, "dtype", where), kDTypeCount);
  if (info.reduces)
    question.op = kind_of<ReduceKind>(where, text(object, "op", where), kReduceKindCount);
  question.shape = bench::shape_of(question.routine, integer(object, "bytes", kLargestSize, where),
                                   question.dtype, ranks);
  return row;
}

}  // namespace

MeasuredRun parse_run(const std::string& content, const std::string& origin) {
  const std::string where = "--check: " + in_quotes(origin);
  const json whole = parse_json(content, where, "the JSON that \"mccl bench --json\" writes");
  MeasuredRun run;
  run.ranks = static_cast<int>(integer(whole, "ranks", kMostRanks, where));
  if (run.ranks == 0) refuse(where, "ranks", "1 or more");
  run.transport = text(whole, "transport", where);
  run.facts = facts_of_json(member(whole, "costs", where), run.ranks);
  if (const std::string name = text(whole, "algorithm", where); name != "auto")
    run.facts.forced =
        kind_of<schedule::Algorithm>(where + ": algorithm", name, schedule::kAlgorithmCount);
  const json& rows = member(whole, "rows", where);
  if (!rows.is_array()) refuse(where, "rows", "a list");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    MeasuredRow row = row_of(rows[i], run.ranks, fmt::format("{}: row {}", where, i));
    if (has_schedule(row.question.routine)) run.rows.push_back(row);
  }
  if (run.rows.empty()) refuse(where, "rows", "a list with a collective in it");
  return run;
}

double Comparison::deviation() const {
  return (choice.predicted_s * 1e6 / std::max(row.time_us, 1e-6) - 1) * 100;
}

std::vector<Comparison> compare(const MeasuredRun& run) {
  std::vector<Comparison> comparisons;
  for (const MeasuredRow& row : run.rows)
    comparisons.push_back({row, choose(row.question, run.facts)});
  return comparisons;
}

std::size_t count_outside(const std::vector<Comparison>& comparisons, double tolerance) {
  return static_cast<std::size_t>(std::ranges::count_if(
      comparisons, [&](const Comparison& c) { return std::abs(c.deviation()) > tolerance; }));
}

std::string comparison_text(const MeasuredRun& run, const std::vector<Comparison>& comparisons,
                            double tolerance) {
  cluster::TableRows rows = {{"# collective", "size (B)", "in place", "algorithm", "chunk (B)",
                              "predicted (us)", "time (us)", "p50 (us)", "deviation (%)"}};
  for (const Comparison& c : comparisons) {
    const Question& question = c.row.question;
    const auto chunk =
        static_cast<double>(c.choice.chunk) * static_cast<double>(element_bytes(question));
    rows.push_back({std::string(bench::info_of(question.routine).name),
                    std::to_string(question.shape.bytes), question.in_place ? "yes" : "no",
                    std::string(schedule::name_of(c.choice.algorithm)), bytes_text(chunk),
                    number_text(c.choice.predicted_s * 1e6), number_text(c.row.time_us),
                    number_text(c.row.p50_us), fmt::format("{:+.0f}", c.deviation())});
  }
  const std::size_t outside = count_outside(comparisons, tolerance);
  return fmt::format(
      "# {} ranks, transport {}\n{}# {} of {} predictions are within {:g} % of the measured time\n",
      run.ranks, run.transport, cluster::table_text(rows), comparisons.size() - outside,
      comparisons.size(), tolerance);
}

std::string comparison_json(const MeasuredRun& run, const std::vector<Comparison>& comparisons) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const Comparison& c : comparisons) {
    const Question& question = c.row.question;
    rows.push_back({{"collective", bench::info_of(question.routine).name},
                    {"bytes", question.shape.bytes},
                    {"in_place", question.in_place},
                    {"algorithm", schedule::name_of(c.choice.algorithm)},
                    {"chunk_bytes", c.choice.chunk * element_bytes(question)},
                    {"predicted_us", c.choice.predicted_s * 1e6},
                    {"time_us", c.row.time_us},
                    {"p50_us", c.row.p50_us},
                    {"deviation_percent", c.deviation()}});
  }
  const Json whole = {{"version", MCCL_VERSION},
                      {"ranks", run.ranks},
                      {"transport", run.transport},
                      {"costs", facts_json(run.facts)},
                      {"rows", rows}};
  return whole.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mccl::cli::plan
