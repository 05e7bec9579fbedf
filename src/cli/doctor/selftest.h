// Runs everything that is there, and notes what comes out, for a machine that nobody else has.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/hosts/session.h"
#include "cli/launch/signals.h"
#include "cluster/host_facts.h"

namespace mccl::cli::doctor {

/// One program that is run.
struct Trial {
  std::string name;
  std::vector<std::string> argv;
  std::string result_file;  ///< Where it writes JSON; empty: nowhere, or among its output.
  double bound_gbs = 0;     ///< At best; 0: as the result has it.
};

/// The machine that the trials run on.
struct ThisMachine {
  std::string program;  ///< mccl.
  std::string python;   ///< Empty: there is none.
  int cores = 1;
  /// What its RDMA devices carry together, 0 where that is not known; absent where there are none.
  std::optional<double> rdma_gbs;
};

/// Others than this machine, for the trials among all hosts.
struct Others {
  std::vector<std::string> flags;     ///< Of mccl launch; empty: there are none.
  std::vector<std::string> programs;  ///< Where mccl is on them.
  double bound_gbs = 0;               ///< Of the slowest pair of them, as it was measured.
  /// Of the host whose RDMA devices carry least, as in ThisMachine; absent where one has none.
  std::optional<double> rdma_gbs;
};

/// What RDMA devices whose ports are active carry together, as in ThisMachine.
std::optional<double> rdma_gbs_of(const cluster::HostFacts& facts);

struct Outcome {
  enum class Kind { good, failed, not_there };
  Kind kind = Kind::failed;
  int status = 0;
  double seconds = 0;
  std::string output;     ///< The last of what it wrote.
  nlohmann::json result;  ///< What it wrote as JSON.
};

/// Every collective over every transport of this machine, and every face that its Python has; where
/// there are others, also every collective among them, over RDMA as well where all have devices.
/// `folder` takes their files.
std::vector<Trial> selftest_trials(const ThisMachine& machine, const Others& others,
                                   const std::string& folder);

/// Runs it to its end, or for so long. Throws Error when a signal ends it.
Outcome run_trial(const Trial& trial, const hosts::Variables& environment,
                  launch::Signals& signals);

/// For people: each trial a line, then figures beside what the machine could do at best.
std::string text_of(const std::vector<Trial>& trials, const std::vector<Outcome>& outcomes);

nlohmann::json json_of(const std::vector<Trial>& trials, const std::vector<Outcome>& outcomes);

}  // namespace mccl::cli::doctor
