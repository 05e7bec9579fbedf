#include "engine/metrics_request.h"

#include <gtest/gtest.h>

#include <string>

namespace mccl::engine {
namespace {

/// Adds the text byte by byte, until the request is over.
MetricsRequest request_of(std::string_view text) {
  MetricsRequest request;
  for (const char& each : text) {
    if (request.is_over()) break;
    request.add(std::as_bytes(std::span(&each, 1)));
  }
  return request;
}

TEST(MetricsRequest, IsOverAtTheEmptyLine) {
  const std::string text = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
  EXPECT_FALSE(request_of(text.substr(0, text.size() - 1)).is_over());
  EXPECT_TRUE(request_of(text).is_over());
  EXPECT_FALSE(request_of(text).refusal());
  EXPECT_FALSE(request_of(text).accepts_open_metrics());
}

TEST(MetricsRequest, IsOverAtItsMaximumSize) {
  const std::string endless(2 * MetricsRequest::kMostRequestBytes, 'x');
  EXPECT_FALSE(request_of(endless.substr(0, MetricsRequest::kMostRequestBytes - 1)).is_over());
  const MetricsRequest request = request_of(endless);
  EXPECT_TRUE(request.is_over());
  EXPECT_TRUE(request.refusal()->status.starts_with("431 "));
  MetricsRequest at_once;
  const std::string with_end = endless + "\r\n\r\n";
  at_once.add(std::as_bytes(std::span(with_end)));
  EXPECT_TRUE(at_once.refusal()->status.starts_with("431 "));
}

}  // namespace
}  // namespace mccl::engine
