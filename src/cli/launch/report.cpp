#include "cli/launch/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/value_text.h"
#include "cli/launch/words.h"

namespace mccl::cli::launch {
namespace {

/// Quotes the value as a shell would need it. Used for display only.
std::string variable_text(const std::string& name, const std::string& value) {
  if (name == "MCCL_JOB_KEY") return "MCCL_JOB_KEY=(a secret of this job)";
  return fmt::format("{}={}", name, shell_word(value));
}

std::string heading(const Job& job, const Rank& rank) {
  const Host& host = job.entry_of(rank);
  return fmt::format("# rank {} of {}, on {}{}\n", rank.rank, job.size(), printable(text_of(host)),
                     is_here(host) ? " (this machine)" : ", by ssh");
}

}  // namespace

std::string text_of(const Job& job, const RunOptions& options, bool commands) {
  const Ports ports = choose_ports(job, options.starting_port, {});
  const std::vector<Reached> places = expected_places(job);
  std::string text;
  for (const Rank& rank : job.ranks) {
    text += heading(job, rank);
    if (commands && !rank.directory.empty())
      text += fmt::format("cd {} &&\n", shell_word(rank.directory));
    for (const auto& [name, value] : environment_of(job, rank, ports, places, options.inherited))
      text += fmt::format("{}{}\n", variable_text(name, value), commands ? " \\" : "");
    if (commands) text += fmt::format("  {}\n", command_line(rank.argv));
  }
  if (commands && !job.all_here() && std::ranges::any_of(job.request.hosts, [](const Host& host) {
        return host.addresses.empty();
      }))
    text += "# Host names stand for the addresses at which ssh reaches the hosts.\n";
  return text;
}

std::string text_of(const Variables& variables) {
  std::string text;
  for (const auto& [name, value] : variables) text += variable_text(name, value) + "\n";
  return text;
}

}  // namespace mccl::cli::launch
