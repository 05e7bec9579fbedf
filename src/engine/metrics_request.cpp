#include "engine/metrics_request.h"

#include <algorithm>

namespace mccl::engine {
namespace {

constexpr std::string_view kEnd = "\r\n\r\n";

}  // namespace

void MetricsRequest::add(std::span<const std::byte> bytes) {
  const std::size_t from = text_.size() - std::min(text_.size(), kEnd.size() - 1);
  const auto taken = bytes.first(std::min(bytes.size(), kMostRequestBytes - text_.size()));
  text_.append(reinterpret_cast<const char*>(taken.data()), taken.size());
  is_complete_ = is_complete_ || text_.find(kEnd, from) != std::string::npos;
}

std::optional<MetricsRequest::Refusal> MetricsRequest::refusal() const {
  if (!is_complete_)
    return Refusal{"431 Request Header Fields Too Large", "the request is too long\n"};
  const std::string_view line = std::string_view(text_).substr(0, text_.find("\r\n"));
  if (!line.starts_with("GET "))
    return Refusal{"405 Method Not Allowed", "only GET is supported\n"};
  if (!line.starts_with("GET /metrics HTTP/1.") && !line.starts_with("GET /metrics?"))
    return Refusal{"404 Not Found", "the metrics are at /metrics\n"};
  return std::nullopt;
}

bool MetricsRequest::accepts_open_metrics() const {
  return text_.find("application/openmetrics-text") != std::string::npos;
}

}  // namespace mccl::engine
