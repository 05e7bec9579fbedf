// The cables of a job, as described in a file.
#pragma once

#include <string>
#include <string_view>

#include "base/cabling.h"

namespace mccl::cli::plan {

/// Parses a JSON list with an object for each cable: {"between": [0, 1], "rate": "10Gbit",
/// "latency": "20us"}. Rate and latency may be missing. Throws InvalidArgument if the text is
/// invalid or the cables do not join all ranks. The message contains `origin` and, in the latter
/// case, the separate parts.
Cabling parse_links(std::string_view text, std::string_view origin, int ranks);

/// Returns comment lines that show the ring and the tree that schedules use.
std::string links_text(const Cabling& cabling, double latency_s, double bytes_per_s);

}  // namespace mccl::cli::plan
