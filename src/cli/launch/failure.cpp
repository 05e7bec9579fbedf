#include "cli/launch/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/settings.h"
#include "base/value_text.h"
#include "cli/kit/quantity.h"
#include "cli/kit/ssh.h"
#include "mccl/config.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

using namespace std::chrono_literals;

/// Shortest silence that counts. Beats are sent every second, and a busy host may answer late.
constexpr auto kNotable = 3s;

std::string time_of_day(Clock::time_point time) {
  const auto ago =
      std::chrono::duration_cast<std::chrono::system_clock::duration>(Clock::now() - time);
  return local_time_text(std::chrono::system_clock::now() - ago, "%H:%M:%S");
}

constexpr int kLargestSignal = 64;

constexpr double kLeastMargin = 5;

/// In seconds. Invalid variables give the default, because the ranks will report the error.
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

bool killed(const Exit& exit) {
  const int number = exit.status - kSignalBase;
  return number > 0 && number <= kLargestSignal;
}

const RankFailure& first_cause(const std::vector<RankFailure>& failures) {
  return *std::ranges::max_element(failures, {}, [](const RankFailure& failure) {
    return failure.exit.connection_lost ? 2 : killed(failure.exit) ? 1 : 0;
  });
}

std::string text_of(const Exit& exit) {
  if (exit.connection_lost) return "was lost with the connection to its host";
  if (!killed(exit)) return fmt::format("exited with status {}", exit.status);
  const int number = exit.status - kSignalBase;
  return fmt::format("was killed by signal {} ({})", number, ::strsignal(number));
}

std::string text_of(const RankFailure& failure, int ranks) {
  return fmt::format("rank {} of {} on {} {}", failure.rank, ranks, printable(failure.host),
                     text_of(failure.exit));
}

void Contact::beat(Time due, Time now) { stood_still_ = std::max(stood_still_, now - due); }

bool Contact::End::in_silence() const { return time - answered >= kNotable; }

/// If the launcher has already begun to end the job, the host's report counts only if the host was
/// silent at that time. Otherwise the report does not explain why the job ended.
void Contact::ended_there() { ended_there_ = !end_ || end_->in_silence(); }

void Contact::rank_ended(Time now) {
  if (end_) answered_ = now;
}

/// Returns advice for the user. If ranks failed before the launcher gave up on the host, the limit
/// that expired was the ranks' own MCCL_LIVENESS_INTERVAL.
std::string Contact::advice() const {
  const bool ranks_were_first = !ended_there_ && !end_->broken;
  const std::string limit = ranks_were_first
                                ? "MCCL_LIVENESS_INTERVAL"
                                : fmt::format("--silence (now {} s)", silence_.count());
  return fmt::format("; try: ssh {}; a larger {} allows longer gaps", login_text(host_), limit);
}

Trouble Contact::ended_there_for_silence() const {
  const std::string cause =
      stood_still_ < silence_ / 2
          ? "the network between this host and the launcher failed"
          : fmt::format(
                "the launcher did not run for {:.1f} s (it was stopped, or its machine slept)",
                std::chrono::duration<double>(stood_still_).count());
  return {true, fmt::format("{}: this host ended its ranks, because it received nothing from the "
                            "launcher for {} s: {}{}",
                            printable(host_.name), silence_.count(), cause, advice())};
}

std::optional<Trouble> Contact::trouble() const {
  if (ended_there_) return ended_there_for_silence();
  if (!end_) return {};
  const std::string name = printable(host_.name);
  if (end_->in_silence()) {
    return Trouble{
        end_->broken || answered_ == end_->answered,
        fmt::format("{}: nothing was received from this host since {}, for {:.1f} s: the "
                    "host or the network to it failed{}",
                    name, time_of_day(end_->answered), seconds_between(end_->answered, end_->time),
                    advice())};
  }
  if (!end_->broken) return {};
  return Trouble{true, fmt::format("{}: the connection to this host ended: {}", name,
                                   explain_ssh(host_, end_->complaint))};
}

std::chrono::seconds silence_of(const Job& job, const Variables& inherited,
                                const std::optional<int>& asked) {
  Variables rank = forwarded(inherited);
  const Variables& entry = job.entry_of(job.ranks.front()).environment;
  for (const Variables* further : {&job.request.environment, &entry})
    for (const auto& [name, value] : *further) rank[name] = value;
  const double interval = liveness_interval_of(rank);
  if (asked && *asked <= interval) {
    throw InvalidArgument(
        fmt::format("--silence {}: expected more than the liveness interval of the ranks, {:g} s, "
                    "because ranks survive shorter outages; give a larger value, or lower "
                    "MCCL_LIVENESS_INTERVAL",
                    *asked, interval));
  }
  const double usual = std::max(2 * interval, interval + kLeastMargin);
  return std::chrono::seconds(asked.value_or(static_cast<int>(std::ceil(usual))));
}

}  // namespace mccl::cli::launch
