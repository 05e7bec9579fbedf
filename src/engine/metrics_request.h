// The HTTP requests that the metrics server reads. A client may send any bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mccl::engine {

/// One request, whose bytes arrive in pieces.
class MetricsRequest {
 public:
  /// Maximum size of a request in bytes. Prometheus sends fewer than 500.
  static constexpr std::size_t kMostRequestBytes = 8192;

  /// The answer to a request that the server refuses.
  struct Refusal {
    std::string_view status;  ///< HTTP status code and its text, such as "404 Not Found".
    std::string_view reason;
  };

  /// Adds bytes that have arrived. Ignores bytes beyond kMostRequestBytes in total.
  void add(std::span<const std::byte> bytes);
  /// True if the request is complete, or has its maximum size. The server then answers.
  bool is_over() const { return is_complete_ || text_.size() == kMostRequestBytes; }
  /// Returns the answer that refuses the request; nothing if the request asks for the metrics.
  std::optional<Refusal> refusal() const;
  /// True if the client can read OpenMetrics.
  bool accepts_open_metrics() const;

 private:
  std::string text_;
  bool is_complete_ = false;  ///< True if `text_` contains the empty line that ends a request.
};

}  // namespace mccl::engine
