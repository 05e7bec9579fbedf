// Runs everything that is there, and notes what comes out, for a machine that nobody else has.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/hosts/session.h"
#include "cli/launch/signals.h"

namespace mccl::cli::doctor {

/// One program that is run.
struct Trial {
  std::string name;
  std::vector<std::string> argv;
  std::string result_file;  ///< Where it writes JSON; empty: nowhere, or among its output.
  double bound_gbs = 0;     ///< At best; 0: as the result has it.
};

/// Others than this machine, for the trial among all hosts.
struct Others {
  std::vector<std::string> flags;     ///< Of mccl launch; empty: there are none.
  std::vector<std::string> programs;  ///< Where mccl is on them.
  double bound_gbs = 0;               ///< Of the slowest pair of them, as it was measured.
};

struct Outcome {
  enum class Kind { good, failed, not_there };
  Kind kind = Kind::failed;
  int status = 0;
  double seconds = 0;
  std::string output;     ///< The last of what it wrote.
  nlohmann::json result;  ///< What it wrote as JSON.
};

/// Every collective over every transport of this machine, and every face that `python` has; where
/// there are others, also every collective among them. `folder` takes their files.
std::vector<Trial> selftest_trials(const std::string& program, const std::string& python, int cores,
                                   const Others& others, const std::string& folder);

/// Runs it to its end, or for so long. Throws Error when a signal ends it.
Outcome run_trial(const Trial& trial, const hosts::Variables& environment,
                  launch::Signals& signals);

/// For people: each trial a line, then figures beside what the machine could do at best.
std::string text_of(const std::vector<Trial>& trials, const std::vector<Outcome>& outcomes);

nlohmann::json json_of(const std::vector<Trial>& trials, const std::vector<Outcome>& outcomes);

}  // namespace mccl::cli::doctor
