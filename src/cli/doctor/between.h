// The results of mccl doctor, and the tests of the connections between hosts.
#pragma once

#include <chrono>
#include <vector>

#include "cli/hosts/inquiry.h"
#include "cluster/paths.h"

namespace mccl::cli::doctor {

struct Between {
  cluster::Connectivity joined;
  std::vector<cluster::InterfacePath> paths;
  std::vector<cluster::Finding> findings;
};

struct Report {
  std::vector<hosts::Asked> asked;
  /// Connections between the hosts that were reached. Empty if fewer than two hosts were reached,
  /// or if one machine has two names.
  Between between;
  std::vector<cluster::Finding> findings;
};

/// Options for measuring the links.
struct Measuring {
  enum class When { never, where_no_job_runs, always };
  When when = When::where_no_job_runs;
  std::chrono::seconds longest{120};  ///< Duration after which no measurement starts.
};

/// Tests the paths between the hosts of the inquiry. All hosts must have been reached. The
/// result has a finding for each host whose probe does not listen.
Between look_between(hosts::Inquiry& inquiry, const Measuring& measuring);

}  // namespace mccl::cli::doctor
