// An HTTP request gets the same answer in whatever pieces it arrives. The first byte of the input
// is the size of a piece, and the second says how often the rest is repeated, so that an input may
// be longer than the limit.
#include <string>

#include "engine/metrics_request.h"
#include "input.h"

namespace {

using mccl::engine::MetricsRequest;

std::string verdict_on(const MetricsRequest& request) {
  const auto refusal = request.refusal();
  if (refusal) return std::string(refusal->status) + std::string(refusal->reason);
  return request.accepts_open_metrics() ? "OpenMetrics" : "text";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mccl::fuzz::Input input(data, size);
  const std::size_t piece = input.byte() + 1;
  const std::size_t repeats = input.byte();
  // The server reads no further once the request is over, and answers at the end of a piece.
  MetricsRequest request;
  std::string read;
  for (std::size_t i = 0; i <= repeats; ++i) {
    mccl::fuzz::Input again = input;
    while (!again.empty() && !request.is_over()) {
      const auto bytes = again.take(piece);
      read.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      request.add(bytes);
    }
  }
  MetricsRequest at_once;
  at_once.add(std::as_bytes(std::span(read)));
  mccl::fuzz::require(request.is_over() == at_once.is_over(), "the end depends on the pieces");
  const std::string verdict = verdict_on(request);
  mccl::fuzz::require(verdict == verdict_on(at_once), "the answer depends on the pieces");
  const std::string limited = read.substr(0, MetricsRequest::kMostRequestBytes);
  const bool is_complete = limited.find("\r\n\r\n") != std::string::npos;
  mccl::fuzz::require(is_complete == !verdict.starts_with("431 "), "the end was not found");
  const bool is_answered = verdict == "OpenMetrics" || verdict == "text";
  mccl::fuzz::require(!is_answered || read.starts_with("GET /metrics"), "another page was asked");
  return 0;
}
