// Reports a context's metrics and costs as JSON.
#include <nlohmann/json.hpp>
#include <string>

#include "c_api/handles.h"
#include "mccl/c.h"
#include "mccl/metrics.h"

using namespace mccl::c_api;

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const mccl::MetricsSummary& summary) {
  return {{"total_ops", summary.total_ops},
          {"total_bytes_sent", summary.total_bytes_sent},
          {"total_bytes_recv", summary.total_bytes_recv},
          {"total_errors", summary.total_errors},
          {"refused_connections", summary.refused_connections},
          {"avg_latency_ms", summary.avg_latency_ms},
          {"p50_latency_ms", summary.p50_latency_ms},
          {"p99_latency_ms", summary.p99_latency_ms},
          {"peak_throughput_gbps", summary.peak_throughput_gbps},
          {"avg_sync_ms", summary.avg_sync_ms},
          {"avg_network_ms", summary.avg_network_ms},
          {"avg_reduce_ms", summary.avg_reduce_ms},
          {"avg_queue_wait_ms", summary.avg_queue_wait_ms},
          {"avg_execution_ms", summary.avg_execution_ms},
          {"staging_bytes", summary.staging_bytes},
          {"peak_staging_bytes", summary.peak_staging_bytes},
          {"pinned_bytes", summary.pinned_bytes},
          {"peak_pinned_bytes", summary.peak_pinned_bytes},
          {"shm_links", summary.shm_links},
          {"rdma_links", summary.rdma_links},
          {"tcp_links", summary.tcp_links}};
}

Json json_of(const mccl::Costs& costs) {
  Json numbers = Json::object();
  for (const auto& [name, value] : costs.numbers) numbers[name] = value;
  return {{"numbers", std::move(numbers)}, {"nodes", costs.nodes}};
}

}  // namespace

mccl_status mccl_context_metrics_json(const mccl_context* context, char* text, size_t capacity,
                                      size_t* length) noexcept {
  constexpr const char* kCall = "mccl_context_metrics_json";
  return guarded([&] {
    const auto metrics = checked(kCall, "context", context).context->metrics();
    copy_text(kCall, json_of(metrics->summary()).dump(), text, capacity, length);
  });
}

mccl_status mccl_context_reset_metrics(mccl_context* context) noexcept {
  return guarded([&] {
    checked("mccl_context_reset_metrics", "context", context).context->metrics()->reset();
  });
}

mccl_status mccl_context_costs_json(const mccl_context* context, char* text, size_t capacity,
                                    size_t* length) noexcept {
  constexpr const char* kCall = "mccl_context_costs_json";
  return guarded([&] {
    const mccl::Costs costs = checked(kCall, "context", context).context->costs();
    copy_text(kCall, json_of(costs).dump(), text, capacity, length);
  });
}
