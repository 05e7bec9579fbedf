// Replaces metrics_page.cpp in builds without prometheus-cpp.
#include "engine/metrics_page.h"
#include "mccl/error.h"

namespace mccl::engine {

MetricsPage::MetricsPage() {
  throw Error(
      "this MCCL was built without prometheus-cpp; install the package prometheus-cpp-dev and "
      "build MCCL again");
}

std::string MetricsPage::text(const RankFigures&, bool) { return {}; }

}  // namespace mccl::engine
