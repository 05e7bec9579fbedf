// Asks the ranks of running jobs for their statuses: the ranks on this host through their local
// sockets, and the ranks on other hosts through one of those here.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "cli/sight/attach.h"
#include "cli/sight/report.h"

namespace mccl::cli::sight {

/// The status of one rank: as read, and as it came.
struct Answer {
  RankReport report;
  nlohmann::json raw;
};

/// Returns the statuses of all ranks of the jobs of this user that have a rank on this host, or
/// only of the job of process `pid`. Empty if there is none. A rank that does not answer has a
/// `trouble`. Throws InvalidArgument if `pid` has no rank.
std::vector<Answer> survey(std::optional<int> pid);

/// Reads what a rank answered about the other ranks of its job (node::kRequestOthers). Skips the
/// ranks in `known`. Throws InvalidArgument; the message begins with `who`.
std::vector<Answer> read_others(std::string_view text, std::string_view who,
                                std::span<const int> known);

}  // namespace mccl::cli::sight
