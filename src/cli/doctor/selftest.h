// Tests every collective, transport and framework that this machine has. Records the results, so
// that a report can describe a machine that its readers do not have.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/between.h"
#include "cli/hosts/which.h"
#include "cluster/host_facts.h"

namespace mccl::cli::doctor {

/// A program to run.
struct SelftestCase {
  std::string name;
  std::vector<std::string> argv;
  /// File in which the program writes its JSON result. Empty: it writes no result, or writes it to
  /// its output.
  std::string result_file;
  double bound_gbs = 0;  ///< Best possible rate, in GB/s; 0: the result contains it.
};

/// The machine that the trials run on.
struct ThisMachine {
  std::string program;  ///< Path of mccl.
  std::string python;   ///< Path of Python; empty if there is none.
  int cores = 1;
  /// Total rate of this machine's active RDMA devices, in GB/s; 0 if it is not known. Absent if
  /// there is no such device.
  std::optional<double> rdma_gbs;
};

/// The hosts besides this machine, for the trials among all hosts.
struct Others {
  std::vector<std::string> flags;     ///< Flags of mccl launch. Empty: no other hosts.
  std::vector<std::string> programs;  ///< Paths of mccl on the hosts, without duplicates.
  double bound_gbs = 0;               ///< Measured rate of their slowest pair.
  /// Total rate of the RDMA devices of the slowest host, in GB/s. Absent if a host has no such
  /// device.
  std::optional<double> rdma_gbs;
};

/// Returns the total rate of the RDMA devices whose ports are active, in GB/s; 0 if it is not
/// known. Returns nothing if there is no such device.
std::optional<double> rdma_gbs_of(const cluster::HostFacts& facts);

/// Returns trials of every collective over every transport of this machine, and of MCCL with NumPy,
/// torch and MLX if there is a Python. If there are other hosts, adds every collective among all
/// hosts, and over RDMA if all have devices. Trials write their files to `folder`.
std::vector<SelftestCase> selftest_cases(const ThisMachine& machine, const Others& others,
                                         const std::string& folder);

/// Runs all trials, prints their results, and writes them with `report` to the file `output`.
/// Returns true if no trial failed. Throws Error if a signal ends them.
bool run_selftest(const hosts::WhichHosts& which, const Report& report, nlohmann::json json,
                  const std::string& output, Signals& signals);

}  // namespace mccl::cli::doctor
