// The results of mccl doctor: of the tests of the connections between hosts, and of the self-test,
// which runs every collective, transport and framework that this machine has.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/hosts/inquiry.h"
#include "cluster/paths.h"
#include "cluster/text.h"

namespace mccl::cli::doctor {

struct Report {
  std::vector<hosts::Asked> asked;
  /// Paths between the hosts that were reached. Empty if fewer than two hosts were reached, or if
  /// one machine has two names.
  std::vector<cluster::InterfacePath> paths;
  std::vector<cluster::Finding> findings;
};

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
  std::vector<std::string> flags;  ///< Flags of mccl launch; empty if no hosts were named.
  /// Path of mccl that the host of each rank has reported, indexed by rank. A text is
  /// empty if the host has reported none.
  std::vector<std::string> programs;
  double bound_gbs = 0;  ///< Rate of the slowest pair of hosts, in GB/s; 0 if not measured.
  /// The lowest rdma_gbs of a host. Absent if a host has no active RDMA device.
  std::optional<double> rdma_gbs;
};

/// See ThisMachine::rdma_gbs.
std::optional<double> rdma_gbs_of(const cluster::HostFacts& facts);

/// Returns trials of every collective over every transport of this machine, of MCCL with NumPy,
/// torch and MLX if Python is installed, and of every collective among all named hosts, also over
/// RDMA if all have RDMA devices. Trials write their files to `folder`.
std::vector<SelftestCase> selftest_cases(const ThisMachine& machine, const Others& others,
                                         const std::string& folder);

/// Removes the JSON that rank 0 of a trial prints from `output`, which another host may have
/// written, and returns it; null if there is none.
nlohmann::json result_in(std::string& output);

/// Returns a row for each measurement of a trial that the table shows. Another host may have
/// written `result`: invalid values become 0 or empty.
cluster::TableRows figures_of(const SelftestCase& trial, const nlohmann::json& result);

/// Runs all trials, prints their results, and writes `json` with them to the file `output`.
/// `entries` are the hosts of `which`, one for each entry. Returns true if no trial failed.
bool run_selftest(const WhichHosts& which, const std::vector<Host>& entries, const Report& report,
                  nlohmann::json json, const std::string& output, Signals& signals);

}  // namespace mccl::cli::doctor
