#include "cli/bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/kit/quantity.h"
#include "mccl/error.h"

namespace mccl::cli::bench {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

Row row_of(Routine routine) {
  Row row;
  row.routine = routine;
  row.shape = shape_of(routine, std::size_t{1} << 20, DType::f32, 2);
  row.root = 1;
  row.op = ReduceKind::sum;
  row.out_of_place = Measurement{{533.25, 530, 601.5, 100}, 1.966, 1.966, 0};
  row.in_place = Measurement{{12345.6, 12000, 20000, 5}, 0.085, 0.085, 7};
  row.out_of_place->algorithm = row.in_place->algorithm = "direct";
  return row;
}

Row barrier_row() {
  Row row;
  row.routine = Routine::barrier;
  row.out_of_place = Measurement{{5.5, 5, 6, 100}, 0, 0, {}};
  return row;
}

Result result() {
  Result result;
  result.setup = {"1.2.3", "A \"quick\" CPU", 2, 2, true, "tcp", "auto"};
  result.bounds = Bounds{std::size_t{64} << 20, 10, 8, 7, Loopback{2, 1, 9}};
  result.rows = {row_of(Routine::reduce), barrier_row()};
  return result;
}

TEST(Table, NumbersKeepFivePlaces) {
  EXPECT_EQ(number_text(0.16), "0.160");
  EXPECT_EQ(number_text(99.9991), "99.999");
  EXPECT_EQ(number_text(533.25), "533.25");
  EXPECT_EQ(number_text(12345.6), "12346");
  EXPECT_EQ(number_text(1234567.8), "1234568");
}

TEST(Table, ColumnsLineUp) {
  std::istringstream heading_lines(heading(Routine::reduce));
  std::string line;
  std::string names;
  while (std::getline(heading_lines, line))
    if (line.find("size") != std::string::npos) names = line;
  const std::string row = row_text(row_of(Routine::reduce));
  ASSERT_EQ(names.size() + 1, row.size());
  // Each column's name ends at the same position as its value.
  for (std::size_t i = 1; i < names.size(); ++i) {
    if (names[i] != ' ' && (i + 1 == names.size() || names[i + 1] == ' ')) {
      EXPECT_NE(row[i], ' ') << "column that ends at " << i;
      EXPECT_TRUE(row[i + 1] == ' ' || row[i + 1] == '\n') << "column that ends at " << i;
    }
  }
}

TEST(Table, ShowsADashForAbsentValues) {
  EXPECT_THAT(row_text(barrier_row()),
              HasSubstr("5.500     5.000     6.000       -       -       -"));
}

TEST(Table, ShowsTheSavingsOfACodecPerRow) {
  Row rounded = row_of(Routine::all_reduce);
  rounded.sent = Sent{270'000, 1'080'000};
  EXPECT_EQ(sent_text({barrier_row()}, "int8"), "");
  EXPECT_EQ(sent_text({barrier_row(), rounded}, "int8"),
            "# bytes that a rank sends per call, with int8 and without compression:\n"
            "#   all_reduce     1M:       270000      1080000  4.00 times fewer\n");
}

TEST(Table, ShowsHowMuchOfACallIsHidden) {
  Row row = row_of(Routine::all_reduce);
  row.in_place->overlap = Overlap{.call_us = 100, .compute_us = 102, .both_us = 112};
  EXPECT_EQ(overlap_text({barrier_row()}), "");
  EXPECT_THAT(overlap_text({barrier_row(), row}),
              AllOf(HasSubstr("hidden\n"), HasSubstr("in place"), EndsWith("90 %\n")));
}

TEST(Overlap, IsTheShareOfTheShorterPartThatCostsNoTime) {
  const auto hidden = [](double call, double compute, double both) {
    return Overlap{.call_us = call, .compute_us = compute, .both_us = both}.hidden();
  };
  EXPECT_DOUBLE_EQ(hidden(100, 100, 100), 1);
  EXPECT_DOUBLE_EQ(hidden(100, 100, 200), 0);
  EXPECT_DOUBLE_EQ(hidden(100, 50, 100), 1);
  EXPECT_DOUBLE_EQ(hidden(100, 100, 250), -0.5);
  EXPECT_DOUBLE_EQ(hidden(0, 0, 1), 0);
}

TEST(Table, ShowsTheAlgorithmOfEachRow) {
  Row row = row_of(Routine::reduce);
  EXPECT_THAT(row_text(row), EndsWith(" direct\n"));
  row.out_of_place->algorithm = "ring";
  EXPECT_THAT(row_text(row), EndsWith(" ring/direct\n"));
}

TEST(Table, OmitsUnsupportedCalls) {
  Row row = row_of(Routine::reduce);
  row.instead = "direct";
  row.in_place.reset();
  EXPECT_EQ(calls_refused({barrier_row(), row}),
            "reduce of " + text_of_size(row.shape.bytes) + " in place");
  row.out_of_place.reset();
  EXPECT_THAT(row_text(row), HasSubstr("not measured; the call would use algorithm direct"));
  EXPECT_TRUE(row_text(row).starts_with("#"));
}

TEST(Report, JsonHasARowForEachHalf) {
  const auto json = nlohmann::json::parse(to_json(result()));
  EXPECT_EQ(json["version"], "1.2.3");
  EXPECT_EQ(json["cpu"], "A \"quick\" CPU");
  EXPECT_EQ(json["bounds"]["pass_all_gbs"], 7.0);
  EXPECT_EQ(json["bounds"]["tcp_round_trip_us"], 9.0);
  ASSERT_EQ(json["rows"].size(), 3U);
  const auto& first = json["rows"][0];
  EXPECT_EQ(first["collective"], "reduce");
  EXPECT_EQ(first["bytes"], 1 << 20);
  EXPECT_EQ(first["count"], 1 << 18);
  EXPECT_EQ(first["in_place"], false);
  EXPECT_EQ(first["time_us"], 533.25);
  EXPECT_EQ(first["wrong"], 0);
  EXPECT_EQ(json["rows"][1]["in_place"], true);
  EXPECT_EQ(json["rows"][1]["wrong"], 7);
  EXPECT_TRUE(json["rows"][2]["busbw"].is_null());
  EXPECT_TRUE(json["rows"][2]["wrong"].is_null());
  EXPECT_TRUE(json["rows"][2]["sent_bytes"].is_null());
}

TEST(Report, BoundsThatWereNotMeasuredAreNull) {
  Result without = result();
  without.bounds.reset();
  EXPECT_TRUE(nlohmann::json::parse(to_json(without))["bounds"].is_null());
  without.bounds = Bounds{};
  EXPECT_TRUE(nlohmann::json::parse(to_json(without))["bounds"]["tcp_one_way_gbs"].is_null());
}

TEST(Report, CsvHasTheSameColumnsInEveryLine) {
  std::istringstream lines(to_csv(result()));
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    EXPECT_EQ(std::ranges::count(line, ','), 19) << line;
    ++count;
  }
  EXPECT_EQ(count, 4);
  EXPECT_THAT(to_csv(result()), HasSubstr("barrier,0,0,,,,false,5.5,5.0,6.0,,,,100,,,,,,\n"));
}

TEST(Report, WrongElementsAddUp) { EXPECT_EQ(wrong_elements(result().rows), 7U); }

}  // namespace
}  // namespace mccl::cli::bench
