// Tests every collective, transport and framework that this machine has. Writes the results to a
// file, which can be attached to a bug report.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/between.h"
#include "cli/hosts/which.h"
#include "cluster/host_facts.h"
#include "cluster/text.h"

namespace mccl::cli::doctor {

/// A program that the self-test runs; also called a trial.
struct SelftestCase {
  std::string name;
  std::vector<std::string> argv;
  /// File to which the program writes its JSON result. Empty if it writes the result to standard
  /// output, or writes no result.
  std::string result_file;
  /// Best possible rate, in GB/s. If 0, the bounds in the JSON result are used.
  double bound_gbs = 0;
};

/// The machine that the trials run on.
struct ThisMachine {
  std::string program;  ///< Path of mccl.
  std::string python;   ///< Path of Python; empty if Python is not installed.
  int cores = 1;
  /// Total rate of this machine's active RDMA devices, in GB/s; 0 if it is not known. Absent if no
  /// RDMA device is active.
  std::optional<double> rdma_gbs;
};

/// Parameters of the trials among several hosts.
struct Others {
  std::vector<std::string> flags;     ///< Flags of mccl launch; empty if no hosts were named.
  std::vector<std::string> programs;  ///< Paths of mccl on the hosts, without duplicates.
  double bound_gbs = 0;  ///< Rate of the slowest pair of hosts, in GB/s; 0 if not measured.
  /// Lowest total rate of a host's active RDMA devices, in GB/s. Absent if a host has no active
  /// RDMA device.
  std::optional<double> rdma_gbs;
};

/// Returns the total rate of the RDMA devices whose ports are active, in GB/s; 0 if the rate is not
/// known. Empty if no port is active.
std::optional<double> rdma_gbs_of(const cluster::HostFacts& facts);

/// Returns trials of every collective over every transport of this machine, and of MCCL with NumPy,
/// torch and MLX if Python is installed. If hosts were named, adds a trial of every collective
/// among all hosts, and a second one over RDMA if all hosts have RDMA devices. Trials write their
/// files to `folder`.
std::vector<SelftestCase> selftest_cases(const ThisMachine& machine, const Others& others,
                                         const std::string& folder);

/// Returns the JSON that rank 0 of a trial prints, without the prefix that mccl launch puts before
/// each line; null if there is none. Removes it from `output`, which another host may have written.
nlohmann::json result_in(std::string& output);

/// Returns a row for each measurement of a trial that the table shows. Another host may have
/// written `result`: invalid values become 0 or empty.
cluster::TableRows figures_of(const SelftestCase& trial, const nlohmann::json& result);

/// Runs all trials and prints their results. Adds the results to `json`, and writes it to the file
/// `output`. Returns true if no trial failed. Throws Error if a signal ends the trials.
bool run_selftest(const hosts::WhichHosts& which, const Report& report, nlohmann::json json,
                  const std::string& output, Signals& signals);

}  // namespace mccl::cli::doctor
