// The metrics of a rank in the text formats of Prometheus and OpenMetrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/flight_recorder.h"
#include "engine/calls/completions.h"
#include "engine/links/link_maker.h"
#include "mccl/metrics.h"

namespace mccl::engine {

/// The values that a rank exports.
struct RankFigures {
  FlightOrigin origin = {};
  MetricsSummary summary = {};
  EndedCalls calls = {};
  /// Names of algorithms. `calls.by_algorithm[collective][i]` counts the calls that used
  /// `algorithms[i]`.
  std::vector<std::string_view> algorithms = {};
  std::map<LinkName, LinkBytes> links = {};
  /// Number of peers by state: connected, silent, left or lost.
  std::map<std::string_view, std::size_t> peers = {};
  std::size_t pending_calls = 0;
  double longest_wait_s = 0;  ///< Longest time for which a pending call has made no progress.
  std::size_t failed_groups = 0;
};

/// Writes the figures as text. The number of series does not grow with the number of ranks: links
/// beyond the first kMostLinks that carried data are added up by transport.
class MetricsPage {
 public:
  static constexpr std::size_t kMostLinks = 64;

  /// Throws Error in a build without prometheus-cpp.
  MetricsPage();

  /// Returns the text in the format OpenMetrics 1.0 or Prometheus 0.0.4.
  std::string text(const RankFigures& figures, bool open_metrics);

 private:
  std::map<std::pair<std::string, LinkName>, LinkBytes> bounded(const RankFigures& figures);

  /// Links with series of their own. A link keeps its series, because a counter must not decrease.
  std::set<LinkName> own_series_;
};

}  // namespace mccl::engine
