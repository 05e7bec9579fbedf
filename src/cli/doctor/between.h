// The results of mccl doctor, and the tests of the connections between hosts.
#pragma once

#include <vector>

#include "cli/hosts/inquiry.h"
#include "cluster/paths.h"

namespace mccl::cli::doctor {

struct Report {
  std::vector<hosts::Asked> asked;
  /// Paths between the hosts that were reached. Empty if fewer than two hosts were reached, or if
  /// one machine has two names.
  std::vector<cluster::InterfacePath> paths;
  std::vector<cluster::Finding> findings;
};

/// Options for measuring the links.
struct Measuring {
  enum class When { never, where_no_job_runs, always };
  When when = When::where_no_job_runs;
  int longest_s = 120;  ///< Seconds after which no measurement starts.
};

/// Tests the paths between the hosts of the inquiry, and returns them. All hosts must have been
/// reached. Adds the faults of the paths to `findings`, and each host whose probe does not listen.
std::vector<cluster::InterfacePath> look_between(hosts::Inquiry& inquiry,
                                                 const Measuring& measuring,
                                                 std::vector<cluster::Finding>& findings);

}  // namespace mccl::cli::doctor
