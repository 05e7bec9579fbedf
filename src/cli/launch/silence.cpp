#include "cli/launch/silence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/settings.h"
#include "mccl/config.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

constexpr double kLeastMargin = 5;

/// Returns the interval that the rank's variables give, or the default if they are invalid. The
/// ranks will report that.
double liveness_interval_of(const Variables& rank) {
  Variables ours;
  for (const std::string& name : {std::string(kConfigFileVariable),
                                  std::string(find_setting("liveness_interval").info.variable)}) {
    if (const auto found = rank.find(name); found != rank.end()) ours.insert(*found);
  }
  try {
    return Config::from_environment(ours).liveness_interval;
  } catch (const InvalidArgument&) {
    return Config().liveness_interval;
  }
}

}  // namespace

std::chrono::seconds silence_of(const Job& job, const Variables& inherited,
                                const std::optional<int>& asked) {
  Variables rank = forwarded(inherited);
  const Variables& entry = job.entry_of(job.ranks.front()).environment;
  for (const Variables* further : {&job.request.environment, &entry})
    for (const auto& [name, value] : *further) rank[name] = value;
  const double interval = liveness_interval_of(rank);
  if (asked && *asked <= interval) {
    throw InvalidArgument(fmt::format(
        "--silence {}: expected more than the liveness interval of the ranks, {:g} s, "
        "which the ranks themselves tolerate; give more, or lower MCCL_LIVENESS_INTERVAL",
        *asked, interval));
  }
  const double usual = std::max(2 * interval, interval + kLeastMargin);
  return std::chrono::seconds(asked.value_or(static_cast<int>(std::ceil(usual))));
}

}  // namespace mccl::cli::launch
