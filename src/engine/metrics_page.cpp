#include "engine/metrics_page.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include "base/version.h"

namespace mccl::engine {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

/// Collects series, each with the label `rank`.
class Families {
 public:
  explicit Families(int rank) : rank_(std::to_string(rank)) {}

  /// Begins a metric family. The name of a counter must end with _total.
  Families& family(const std::string& name, MetricType type, const std::string& help) {
    all_.push_back({"mccl_" + name, help, type, {}});
    return *this;
  }
  /// Adds a series to the last family.
  Families& add(double value, Labels labels = {}) {
    ClientMetric metric;
    labels.push_back({"rank", rank_});
    metric.label = std::move(labels);
    metric.counter.value = metric.gauge.value = value;
    all_.back().metric.push_back(std::move(metric));
    return *this;
  }
  const std::vector<MetricFamily>& all() const { return all_; }

 private:
  const std::string rank_;
  std::vector<MetricFamily> all_;
};

/// Exports the fields of the summary as gauges, because reset_metrics() sets them to 0, and a
/// counter must not decrease.
void add_summary(Families& families, const MetricsSummary& summary) {
  for_each_field(summary, [&](const char* name, auto value) {
    families
        .family(name, MetricType::Gauge, std::string("The field ") + name + " of MetricsSummary.")
        .add(static_cast<double>(value));
  });
}

void add_state(Families& families, const RankFigures& figures) {
  families
      .family(
          "info", MetricType::Gauge,
          "Labels that describe the process; the value is always 1. job_name is the same on all "
          "ranks of the job.")
      .add(1, {{"job_name", figures.origin.job},
               {"host", figures.origin.host},
               {"pid", std::to_string(::getpid())},
               {"version", std::string(version())}});
  families.family("job_ranks", MetricType::Gauge, "Number of ranks of the job.")
      .add(figures.origin.size);
  families.family("peers", MetricType::Gauge, "Number of other ranks in each state.");
  for (const auto& [state, count] : figures.peers)
    families.add(static_cast<double>(count), {{"state", std::string(state)}});
  families.family("pending_calls", MetricType::Gauge, "Number of calls that have not ended.")
      .add(static_cast<double>(figures.pending_calls));
  families
      .family("longest_wait_seconds", MetricType::Gauge,
              "Longest time for which a pending call has made no progress.")
      .add(figures.longest_wait_s);
  families
      .family("failed_groups", MetricType::Gauge,
              "Number of groups that have failed and still exist.")
      .add(static_cast<double>(figures.failed_groups));
}

void add_calls(Families& families, const RankFigures& figures) {
  families.family("calls_total", MetricType::Counter,
                  "Number of calls that have ended, failed calls included.");
  for (std::size_t i = 0; i < kCollectiveCount; ++i) {
    for (std::size_t j = 0; j < EndedCalls::kMostAlgorithms; ++j) {
      const std::uint64_t count = figures.calls.by_algorithm[i][j];
      if (count == 0) continue;
      const std::string_view name = j < figures.algorithms.size() ? figures.algorithms[j] : "";
      families.add(static_cast<double>(count),
                   {{"collective", std::string(name_of(static_cast<Collective>(i)))},
                    {"algorithm", name.empty() ? "none" : std::string(name)}});
    }
  }
  families.family("compression_calls_total", MetricType::Counter,
                  "Number of calls whose sums a codec rounded, failed calls included.");
  for (std::size_t i = 1; i < kCodecCount; ++i) {
    if (figures.calls.by_codec[i] == 0) continue;
    families.add(static_cast<double>(figures.calls.by_codec[i]),
                 {{"codec", std::string(name_of(static_cast<Codec>(i)))}});
  }
}

/// Converts text from the format of Prometheus to OpenMetrics, where the name of a family of
/// counters lacks _total, and the text ends with the line "# EOF".
std::string to_open_metrics(std::string_view text) {
  constexpr std::string_view kTotal = "_total ";
  std::string converted;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string line(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.starts_with('#')) {
      const std::size_t total = line.find(kTotal);
      const std::size_t name_end = line.find(' ', line.find("mccl_"));
      if (total + kTotal.size() == name_end + 1) line.erase(total, kTotal.size() - 1);
    }
    converted += line + '\n';
  }
  return converted + "# EOF\n";
}

}  // namespace

MetricsPage::MetricsPage() = default;

/// Returns the bytes of each series, keyed by the series' label "peer" and its link. Links without
/// a series of their own are added up, by transport, in series with the label "other".
std::map<std::pair<std::string, LinkName>, LinkBytes> MetricsPage::bounded(
    const RankFigures& figures) {
  std::map<std::pair<std::string, LinkName>, LinkBytes> result;
  for (const auto& [name, bytes] : figures.links) {
    if (bytes.sent + bytes.received == 0) continue;
    if (own_series_.size() < kMostLinks) own_series_.insert(name);
    const bool is_own = own_series_.contains(name);
    LinkBytes& sum = is_own ? result[{std::to_string(name.peer.number()), name}]
                            : result[{"other", {WorldRank(), 0, name.transport}}];
    sum.sent += bytes.sent;
    sum.received += bytes.received;
  }
  return result;
}

std::string MetricsPage::text(const RankFigures& figures, bool open_metrics) {
  Families families(figures.origin.rank);
  add_summary(families, figures.summary);
  add_state(families, figures);
  add_calls(families, figures);
  const auto links = bounded(figures);
  const auto add_links = [&](const std::string& name, std::uint64_t LinkBytes::*bytes) {
    families.family(name, MetricType::Counter,
                    "Bytes of messages and their headers on links to a peer, in all groups.");
    for (const auto& [key, each] : links) {
      families.add(static_cast<double>(each.*bytes),
                   {{"peer", key.first},
                    {"transport", std::string(key.second.transport)},
                    {"link", std::to_string(key.second.rail)}});
    }
  };
  add_links("link_sent_bytes_total", &LinkBytes::sent);
  add_links("link_received_bytes_total", &LinkBytes::received);
  const std::string text = prometheus::TextSerializer().Serialize(families.all());
  return open_metrics ? to_open_metrics(text) : text;
}

}  // namespace mccl::engine
