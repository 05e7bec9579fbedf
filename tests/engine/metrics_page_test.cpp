#include "engine/metrics_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "schedule/algorithm_table.h"

namespace mccl::engine {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

static_assert(schedule::kAlgorithmCount < EndedCalls::kMostAlgorithms);

std::size_t series_of(const std::string& text) {
  std::istringstream lines(text);
  std::size_t series = 0;
  for (std::string line; std::getline(lines, line);)
    if (!line.empty() && line.front() != '#') ++series;
  return series;
}

RankFigures figures_with_links(int peers, int rails) {
  RankFigures figures;
  figures.origin = {.job = "j", .host = "desk", .rank = 3, .size = peers + 1};
  for (const char* state : {"connected", "silent", "left", "lost"}) figures.peers[state] = 1;
  for (int peer = 0; peer < peers; ++peer) {
    for (int rail = 0; rail < rails; ++rail) {
      for (const char* transport : {"tcp", "shm", "rdma"})
        figures.links[{WorldRank(peer), static_cast<std::uint8_t>(rail), transport}] = {2, 1};
    }
  }
  return figures;
}

/// docs/inspect.md states this bound.
TEST(MetricsPage, HasAtMost400SeriesForJobsOfAnySize) {
  RankFigures figures = figures_with_links(1023, 8);
  for (auto& counts : figures.calls.by_algorithm) counts.fill(1);
  figures.calls.by_codec.fill(1);
  MetricsPage page;
  const std::size_t series = series_of(page.text(figures, false));
  EXPECT_LE(series, 400U);
  EXPECT_GE(series, 380U);
  EXPECT_EQ(series, series_of(page.text(figures_with_links(4095, 8), false)) + 11 * 20 + 7);
}

TEST(MetricsPage, AddsUpTheLinksThatHaveNoSeriesOfTheirOwn) {
  const std::string text = MetricsPage().text(figures_with_links(100, 1), false);
  // Each rank has links over three transports. The first 64 links have series of their own, among
  // them those to ranks 0 to 20 over tcp.
  EXPECT_THAT(text, HasSubstr(R"(sent_bytes_total{peer="0",transport="tcp",link="0",rank="3"} 2)"));
  EXPECT_THAT(text,
              HasSubstr(R"(sent_bytes_total{peer="other",transport="tcp",link="0",rank="3"} 158)"));
}

TEST(MetricsPage, ALinkKeepsItsSeries) {
  MetricsPage page;
  RankFigures figures = figures_with_links(100, 1);
  std::erase_if(figures.links, [](const auto& link) { return link.first.peer < WorldRank(80); });
  page.text(figures, false);
  const std::string text = page.text(figures_with_links(100, 1), false);
  EXPECT_THAT(text, HasSubstr(R"({peer="99",transport="tcp")"));
  EXPECT_THAT(text, Not(HasSubstr(R"({peer="50",transport="tcp")")));
}

TEST(MetricsPage, CountsCallsByAlgorithmAndCodec) {
  RankFigures figures = figures_with_links(1, 1);
  Task task;
  task.call.collective = Collective::all_reduce;
  task.call.coding.codec = Codec::bf16;
  task.flight.algorithm = 2;
  figures.algorithms = {"", "direct", "ring"};
  figures.calls.add(task);
  task.flight.algorithm = 255;
  task.call.coding.codec = Codec::none;
  figures.calls.add(task);
  const std::string text = MetricsPage().text(figures, false);
  EXPECT_THAT(text,
              HasSubstr(R"(calls_total{collective="all_reduce",algorithm="ring",rank="3"} 1)"));
  EXPECT_THAT(text,
              HasSubstr(R"(calls_total{collective="all_reduce",algorithm="none",rank="3"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(compression_calls_total{codec="bf16",rank="3"} 1)"));
}

TEST(MetricsPage, HasTheFieldsOfTheSummary) {
  RankFigures figures = figures_with_links(1, 1);
  figures.summary.total_ops = 12;
  const std::string text = MetricsPage().text(figures, false);
  EXPECT_THAT(text, HasSubstr("# TYPE mccl_total_ops gauge\nmccl_total_ops{rank=\"3\"} 12\n"));
  for_each_field(figures.summary, [&](const char* name, auto) {
    EXPECT_THAT(text, HasSubstr(std::string("\nmccl_") + name + "{"));
  });
}

TEST(MetricsPage, NamesCountersAsOpenMetricsDoes) {
  const std::string text = MetricsPage().text(figures_with_links(1, 1), true);
  EXPECT_THAT(text, HasSubstr("# TYPE mccl_link_sent_bytes counter\nmccl_link_sent_bytes_total{"));
  EXPECT_THAT(text, HasSubstr("# HELP mccl_link_sent_bytes Bytes"));
  EXPECT_THAT(text, HasSubstr("# TYPE mccl_total_ops gauge\n"));
  EXPECT_THAT(text, EndsWith("# EOF\n"));
}

}  // namespace
}  // namespace mccl::engine
