// Asks the ranks of running jobs for their statuses: the ranks on this host through their local
// sockets, and the ranks on other hosts through a rank on this host.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "cli/sight/attach.h"
#include "cli/sight/report.h"

namespace mccl::cli::sight {

/// The status of one rank: parsed, and as JSON.
struct RankAnswer {
  RankReport report;
  nlohmann::json raw;
};

/// Returns the statuses of all ranks of the jobs that have a rank of this user on this host. If
/// `pid` is given, returns only the statuses of ranks in that process's jobs. Empty if there is no
/// such job. If a rank does not answer, its report has a `trouble`. Throws InvalidArgument if that
/// process runs no rank.
std::vector<RankAnswer> survey(std::optional<int> pid);

/// Parses a rank's answer to node::kRequestOthers: the statuses of the other ranks of its job.
/// Skips the ranks in `known`. Throws InvalidArgument if the text is invalid; the message begins
/// with `who`.
std::vector<RankAnswer> read_others(std::string_view text, std::string_view who,
                                    std::span<const int> known);

}  // namespace mccl::cli::sight
