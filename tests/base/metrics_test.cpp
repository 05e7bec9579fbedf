#include "mccl/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/histogram.h"

namespace mccl {
namespace {

using ::testing::HasSubstr;

TEST(Histogram, QuantilesAreWithinFivePercentOverElevenDecades) {
  for (const double scale : {1e-7, 1e-5, 1e-3, 1e-1, 1e1, 1e3}) {
    std::mt19937 random(23);
    std::lognormal_distribution<double> spread(0, 0.5);
    std::vector<double> values(2001);
    Histogram histogram;
    for (double& value : values) histogram.add(value = scale * spread(random));
    std::ranges::sort(values);
    for (const double share : {0.01, 0.5, 0.9, 0.99, 1.0}) {
      const double exact = values[static_cast<std::size_t>(std::ceil(share * 2001)) - 1];
      EXPECT_NEAR(histogram.quantile(share), exact, 0.05 * exact) << scale << " " << share;
    }
  }
}

TEST(Histogram, ReportsASingleValueExactly) {
  Histogram histogram;
  EXPECT_EQ(histogram.quantile(0.5), 0);
  histogram.add(0.0123);
  EXPECT_EQ(histogram.quantile(0), 0.0123);
  EXPECT_EQ(histogram.quantile(0.5), 0.0123);
  EXPECT_EQ(histogram.quantile(1), 0.0123);
}

TEST(Histogram, HandlesInvalidDurations) {
  Histogram histogram;
  for (const double value :
       {0.0, -1.0, 1e-300, 1e300, std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    histogram.add(value);
  EXPECT_EQ(histogram.count(), 7u);
  EXPECT_TRUE(std::isfinite(histogram.quantile(1)));
  EXPECT_GE(histogram.quantile(0), 0);
}

CallSample call_of(double queue_wait, double execution, double network, double reduce) {
  return {.queue_wait_s = queue_wait,
          .execution_s = execution,
          .network_s = network,
          .reduce_s = reduce,
          .payload_bytes = 1000,
          .bytes_sent = 10,
          .bytes_received = 20};
}

TEST(Metrics, AveragesOverTheCallsThatSucceeded) {
  Metrics metrics;
  metrics.record(call_of(0.001, 0.010, 0.004, 0.002));
  metrics.record(call_of(0.003, 0.030, 0.008, 0.004));
  CallSample failed = call_of(5, 1800, 0, 0);
  failed.failed = true;
  metrics.record(failed);
  const MetricsSummary summary = metrics.summary();
  EXPECT_EQ(summary.total_ops, 3u);
  EXPECT_EQ(summary.total_errors, 1u);
  EXPECT_EQ(summary.total_bytes_sent, 30u);
  EXPECT_EQ(summary.total_bytes_recv, 60u);
  EXPECT_DOUBLE_EQ(summary.avg_queue_wait_ms, 2);
  EXPECT_DOUBLE_EQ(summary.avg_execution_ms, 20);
  EXPECT_DOUBLE_EQ(summary.avg_latency_ms, 22);
  EXPECT_DOUBLE_EQ(summary.avg_network_ms, 6);
  EXPECT_DOUBLE_EQ(summary.avg_reduce_ms, 3);
  EXPECT_DOUBLE_EQ(summary.avg_sync_ms, 11);
  EXPECT_NEAR(summary.p50_latency_ms, 11, 0.05 * 11);
  EXPECT_NEAR(summary.p99_latency_ms, 33, 0.05 * 33);
}

TEST(Metrics, StagingHasACurrentValueAndAPeak) {
  Metrics metrics;
  metrics.record_staging(1000);
  metrics.record_staging(500);
  metrics.record_staging(-1200);
  EXPECT_EQ(metrics.summary().staging_bytes, 300u);
  EXPECT_EQ(metrics.summary().peak_staging_bytes, 1500u);
  metrics.reset();
  EXPECT_EQ(metrics.summary().staging_bytes, 300u) << "it is still held";
  EXPECT_EQ(metrics.summary().peak_staging_bytes, 300u);
}

TEST(Metrics, CountsBeyondTenThousandCalls) {
  Metrics metrics;
  for (int i = 0; i < 25'000; ++i) metrics.record(call_of(0, 0.001, 0, 0));
  EXPECT_EQ(metrics.summary().total_ops, 25'000u);
}

TEST(Metrics, ThePeakIncludesSmallCalls) {
  Metrics metrics;
  CallSample call = call_of(0, 1e-6, 0, 0);
  call.payload_bytes = 25;
  metrics.record(call);
  EXPECT_DOUBLE_EQ(metrics.summary().peak_throughput_gbps, 0.2);
  call.payload_bytes = 125'000'000;
  call.execution_s = 1;
  metrics.record(call);
  EXPECT_DOUBLE_EQ(metrics.summary().peak_throughput_gbps, 1);
  call.execution_s = 0.5;
  metrics.record(call);
  call.execution_s = 2;
  metrics.record(call);
  EXPECT_DOUBLE_EQ(metrics.summary().peak_throughput_gbps, 2);
  call.execution_s = 0;
  metrics.record(call);
  EXPECT_DOUBLE_EQ(metrics.summary().peak_throughput_gbps, 2);
}

TEST(Metrics, OverlappingPartsLeaveNoNegativeSync) {
  Metrics metrics;
  metrics.record(call_of(0, 0.010, 0.009, 0.008));
  EXPECT_EQ(metrics.summary().avg_sync_ms, 0);
}

TEST(Metrics, InvalidTimesDoNotSpoilTheAverages) {
  Metrics metrics;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  metrics.record(call_of(nan, -1, nan, std::numeric_limits<double>::infinity()));
  metrics.record(call_of(0, 0.002, 0, 0));
  EXPECT_DOUBLE_EQ(metrics.summary().avg_latency_ms, 1);
}

TEST(Metrics, ResetZeroesEverything) {
  Metrics metrics;
  metrics.record(call_of(0.1, 0.1, 0.1, 0.1));
  metrics.record_refused_connection();
  EXPECT_EQ(metrics.summary().refused_connections, 1u);
  metrics.reset();
  EXPECT_EQ(to_table(metrics.summary()), to_table(MetricsSummary{}));
  EXPECT_EQ(metrics.summary().refused_connections, 0u);
  metrics.record(call_of(0, 0.001, 0, 0));
  EXPECT_NEAR(metrics.summary().p99_latency_ms, 1, 0.05);
}

TEST(Metrics, ManyThreadsLoseNothing) {
  Metrics metrics;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        metrics.record(call_of(0, 0.001, 0, 0));
        metrics.record_refused_connection();
        if (i % 1000 == 0) metrics.summary();
      }
    });
  for (std::thread& thread : threads) thread.join();
  const MetricsSummary summary = metrics.summary();
  EXPECT_EQ(summary.total_ops, 20'000u);
  EXPECT_EQ(summary.total_bytes_sent, 200'000u);
  EXPECT_EQ(summary.refused_connections, 20'000u);
  EXPECT_NEAR(summary.avg_latency_ms, 1, 1e-9);
}

TEST(MetricsTable, IsAlignedAndHasUnits) {
  MetricsSummary summary;
  summary.total_ops = 1234567;
  summary.total_bytes_sent = 3u << 20;
  summary.total_bytes_recv = 999;
  summary.p50_latency_ms = 0.25;
  summary.peak_throughput_gbps = 12.5;
  const std::string table = to_table(summary);
  EXPECT_THAT(table, HasSubstr("1234567\n"));
  EXPECT_THAT(table, HasSubstr(" 3.0 MiB\n"));
  EXPECT_THAT(table, HasSubstr(" 999 B\n"));
  EXPECT_THAT(table, HasSubstr(" 0.250 ms\n"));
  EXPECT_THAT(table, HasSubstr(" 12.50 Gbit/s\n"));
  const std::size_t width = table.find('\n');
  std::size_t begin = 0;
  for (std::size_t end; (end = table.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_EQ(end - begin, width) << table;
}

}  // namespace
}  // namespace mccl
