// The cables of a job as a file tells them.
#pragma once

#include <string>
#include <string_view>

#include "base/cabling.h"

namespace mccl::cli::plan {

/// A JSON list with an object for each cable: {"between": [0, 1], "rate": "10Gbit", "latency":
/// "20us"}, of which rate and latency may be missing. Throws InvalidArgument that names `origin`,
/// also where the cables do not join all ranks: with the parts.
Cabling parse_links(std::string_view text, std::string_view origin, int ranks);

/// Comment lines: the ring and the tree that schedules go along.
std::string links_text(const Cabling& cabling, double latency_s, double bytes_per_s);

}  // namespace mccl::cli::plan
