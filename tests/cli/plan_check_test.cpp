#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/bench/report.h"
#include "cli/plan/facts.h"
#include "mccl/error.h"
#include "schedule/choose.h"

namespace mccl::cli::plan {
namespace {

using bench::Routine;
using nlohmann::json;
using ::testing::HasSubstr;

/// Returns JSON as mccl bench writes it.
json measured() {
  bench::Result result;
  result.setup = {"1.2.3", "a CPU", 2, 2, true, "auto", "auto"};
  schedule::Facts facts;
  facts.nodes = {0, 0};
  facts.window_bytes = 1 << 20;
  for (const schedule::FactInfo& info : schedule::fact_table())
    result.costs.numbers.emplace_back(info.name, schedule::value_of(facts, info));
  result.costs.nodes = facts.nodes;
  bench::Row row;
  row.routine = Routine::all_reduce;
  row.shape = bench::shape_of(row.routine, 1 << 20, DType::f32, 2);
  row.op = ReduceKind::sum;
  row.out_of_place = bench::Measurement{{100, 90, 200, 50}, 0, 0, {}};
  row.in_place = bench::Measurement{{50, 45, 80, 50}, 0, 0, {}};
  bench::Row barrier;
  barrier.routine = Routine::barrier;
  barrier.out_of_place = bench::Measurement{{1, 1, 1, 50}, 0, 0, {}};
  bench::Row messages = row;
  messages.routine = bench::kSendrecv;
  messages.op.reset();
  messages.in_place.reset();
  bench::Row broadcast = messages;
  broadcast.routine = Routine::broadcast;
  broadcast.root = 1;
  result.rows = {row, messages, barrier, broadcast};
  return json::parse(bench::to_json(result));
}

TEST(Check, ReadsWhatBenchWrites) {
  const MeasuredRun run = parse_run(measured().dump(), "run.json");
  EXPECT_EQ(run.ranks, 2);
  EXPECT_EQ(run.facts.nodes, (std::vector<int>{0, 0}));
  EXPECT_EQ(run.facts.window_bytes, 1U << 20);
  EXPECT_FALSE(run.facts.forced);
  ASSERT_EQ(run.rows.size(), 4U);  // all but sendrecv
  EXPECT_EQ(run.rows[0].question.routine, Routine::all_reduce);
  EXPECT_EQ(run.rows[0].question.shape.bytes, 1U << 20);
  EXPECT_EQ(run.rows[0].time_us, 100);
  EXPECT_FALSE(run.rows[0].question.in_place);
  EXPECT_TRUE(run.rows[1].question.in_place);
  EXPECT_EQ(run.rows[2].question.routine, Routine::barrier);
  EXPECT_EQ(run.rows[3].question.root, 1);
}

TEST(Check, UsesTheForcedAlgorithm) {
  json file = measured();
  file["algorithm"] = "ring";
  const MeasuredRun run = parse_run(file.dump(), "run.json");
  ASSERT_TRUE(run.facts.forced);
  EXPECT_EQ(compare(run)[0].choice.algorithm, schedule::Algorithm::ring);
}

TEST(Check, ComputesTheDeviationOfThePrediction) {
  Comparison comparison;
  comparison.row.time_us = 100;
  comparison.choice.predicted_s = 130e-6;
  EXPECT_NEAR(comparison.deviation(), 30, 1e-9);
  comparison.choice.predicted_s = 50e-6;
  EXPECT_NEAR(comparison.deviation(), -50, 1e-9);
  EXPECT_EQ(count_outside({comparison}, 50.1), 0U);
  EXPECT_EQ(count_outside({comparison}, 49.9), 1U);
}

TEST(Check, TheTableCountsCorrectPredictions) {
  const MeasuredRun run = parse_run(measured().dump(), "run.json");
  std::vector<Comparison> comparisons = compare(run);
  for (Comparison& comparison : comparisons)
    comparison.row.time_us = comparison.choice.predicted_s * 1e6;
  comparisons[0].row.time_us *= 2;
  const std::string text = comparison_text(run, comparisons, 30);
  EXPECT_THAT(text, HasSubstr("3 of 4 predictions are within 30 %"));
  EXPECT_THAT(text, HasSubstr("-50\n"));
  const json file = json::parse(comparison_json(run, comparisons));
  EXPECT_NEAR(file["rows"][0]["deviation_percent"].get<double>(), -50, 1e-6);
}

TEST(Check, NamesTheFaultInAFile) {
  const auto message = [](const json& file) {
    try {
      parse_run(file.dump(), "run.json");
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const auto without = [](const char* key) {
    json file = measured();
    file.erase(key);
    return file;
  };
  const auto with = [](const char* key, const json& value, bool in_row = false) {
    json file = measured();
    (in_row ? file["rows"][0] : file)[key] = value;
    return file;
  };
  EXPECT_THAT(message(without("costs")), HasSubstr("costs"));
  EXPECT_THAT(message(without("ranks")),
              HasSubstr("--check: \"run.json\": expected a valid \"ranks\""));
  EXPECT_THAT(message(with("ranks", 1 << 30)), HasSubstr("ranks"));
  EXPECT_THAT(message(with("ranks", -2)), HasSubstr("ranks"));
  EXPECT_THAT(message(with("ranks", 0)), HasSubstr("ranks"));
  EXPECT_THAT(message(with("ranks", 3)), HasSubstr("nodes"));
  EXPECT_THAT(message(with("algorithm", "rings")), HasSubstr("did you mean ring"));
  EXPECT_THAT(message(with("rows", json::array())), HasSubstr("rows"));
  EXPECT_THAT(message(with("collective", "all_reduced", true)), HasSubstr("all_reduce"));
  EXPECT_THAT(message(with("collective", "all", true)), HasSubstr("row 0"));
  EXPECT_THAT(message(with("bytes", -1, true)), HasSubstr("bytes"));
  EXPECT_THAT(message(with("bytes", std::uint64_t{1} << 50, true)), HasSubstr("bytes"));
  EXPECT_THAT(message(with("time_us", "fast", true)), HasSubstr("time_us"));
  EXPECT_THAT(message(with("dtype", nullptr, true)), HasSubstr("dtype"));
  json file = measured();
  file["costs"]["bytes_per_s"] = 0;
  EXPECT_THAT(message(file), HasSubstr("bytes_per_s"));
  file = measured();
  file["costs"]["nodes"] = {0, 1 << 30};
  EXPECT_THAT(message(file), HasSubstr("nodes"));
  EXPECT_THROW(parse_run("not JSON", "run.json"), InvalidArgument);
  EXPECT_THROW(parse_run("[]", "run.json"), InvalidArgument);
}

TEST(PlanFacts, AreSetByName) {
  schedule::Facts facts;
  set_fact(facts, "latency_s=30us");
  set_fact(facts, "bytes_per_s=10Gbit");
  set_fact(facts, "shared_cache_bytes=2M");
  set_fact(facts, "ranks_per_core=1.5");
  EXPECT_DOUBLE_EQ(facts.latency_s, 30e-6);
  EXPECT_DOUBLE_EQ(facts.bytes_per_s, 1.25e9);
  EXPECT_EQ(facts.shared_cache_bytes, 2 << 20);
  EXPECT_EQ(facts.ranks_per_core, 1.5);
  for (const char* text : {"", "latency=1us", "latency_s", "latency_s=", "latency_s=soon",
                           "bytes_per_s=0", "chunk_bytes=-4", "ranks_per_core=0.1"})
    EXPECT_THROW(set_fact(facts, text), InvalidArgument) << text;
}

TEST(PlanFacts, SurviveWritingAndReading) {
  schedule::Facts facts;
  facts.latency_s = 1.0 / 3;
  facts.window_bytes = 12345;
  facts.nodes = {0, 0, 1};
  const schedule::Facts back = facts_of_json(json::parse(facts_json(facts).dump()), 3);
  for (const schedule::FactInfo& info : schedule::fact_table())
    EXPECT_EQ(schedule::value_of(back, info), schedule::value_of(facts, info)) << info.name;
  EXPECT_EQ(back.nodes, facts.nodes);
}

TEST(PlanFacts, NodesAreFilledInTurn) {
  EXPECT_EQ(nodes_of(5, 2), (std::vector<int>{0, 0, 1, 1, 2}));
  EXPECT_TRUE(nodes_of(5, 1).empty());
  schedule::Facts facts;
  EXPECT_EQ(node_count(facts, 5), 5);
  facts.nodes = nodes_of(5, 2);
  EXPECT_EQ(node_count(facts, 5), 3);
  EXPECT_EQ(fullest_node(facts), 2);
}

}  // namespace
}  // namespace mccl::cli::plan
