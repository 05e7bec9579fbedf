// A script that asked for JSON gets some, whatever happens.
#pragma once

#include <fmt/format.h>

#include <exception>

#include "cluster/finding.h"

namespace mccl::cli::hosts {

/// Runs the command. What it throws is printed as {"error": …} too, where JSON was asked for.
template <typename Run>
int with_json_errors(bool json, Run&& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    if (json) fmt::print("{}", cluster::dumped({{"error", error.what()}}));
    throw;
  }
}

}  // namespace mccl::cli::hosts
