#include "cli/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/environment.h"
#include "cli/doctor/between.h"
#include "cli/doctor/report.h"
#include "cli/hosts/inquiry.h"
#include "cli/hosts/which.h"
#include "cluster/cluster_check.h"
#include "cluster/hostfile_check.h"
#include "cluster/machine_check.h"

namespace mccl::cli {
namespace {

using cluster::Finding;
using cluster::Severity;
using hosts::Asked;

constexpr const char* kSummary = "Find what is wrong with this machine or a cluster, before a run";

constexpr const char* kFooter =
    R"(Every finding says what is wrong, where, why it matters, and the command that cures it. A problem
makes a job fail, now or some day; a warning makes it slower or less certain; a note asks for nothing.
Nothing is changed on any machine.

Alone: shared memory, limits of files and locked memory, cores, interfaces, RDMA devices, GPUs, and
settings in the environment that MCCL would refuse.
Of several machines also, over ssh: versions, clocks, settings that must agree, addresses, and where
mccl is there, real connections: every address that should be reached, in both directions, on ports
that a job uses, the size of packets that arrive, latency and rate of each link.

Examples:
  mccl doctor                            this machine
  mccl doctor --hosts a,b,me@c:2222      three machines and what joins them
  mccl doctor --hostfile desk.json       those of a job
  mccl doctor --hostfile desk.json --json > cluster.json
  mccl doctor --hosts a,b || echo "not today"

Exit status: 0 nothing is wrong (there may be notes), 1 problems or warnings, 2 bad arguments.)";

struct Flags {
  hosts::WhichHosts which;
  bool json = false;
};

Finding unreachable(const Asked& asked) {
  return {.severity = Severity::problem,
          .what = "it cannot be asked",
          .where = launch::text_of(asked.host),
          .why = "no rank can be started there: " + asked.fault,
          .cure = fmt::format("ssh {} true, until it says nothing", asked.host.name)};
}

void append(std::vector<Finding>& findings, std::vector<Finding> more) {
  findings.insert(findings.end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
}

/// What each host shows by itself, and all beside each other.
std::vector<Finding> findings_of(const std::vector<Asked>& asked) {
  std::vector<Finding> findings;
  std::vector<cluster::HostFacts> reached;
  std::vector<std::vector<std::string>> addresses;
  for (const Asked& each : asked) {
    if (!each.reached) {
      findings.push_back(unreachable(each));
      continue;
    }
    append(findings, cluster::check_machine(each.facts));
    append(findings, cluster::check_settings(each.facts));
    reached.push_back(each.facts);
    addresses.push_back(each.host.addresses);
  }
  append(findings, cluster::check_cluster(reached));
  append(findings, cluster::check_hostfile(reached, addresses));
  return findings;
}

int run_doctor(const Flags& flags) {
  const launch::Hostfile file = hosts::hosts_of(flags.which);
  const hosts::Reaching reaching{process_environment(), flags.which.ssh_arguments};
  launch::Signals signals;
  hosts::Inquiry inquiry(file.hosts, reaching, signals, [](const std::string& text) {
    fmt::print(stderr, "mccl doctor: {}\n", text);
  });
  inquiry.gather(std::chrono::seconds(flags.which.patience));
  doctor::Report report;
  report.asked = inquiry.asked();
  report.findings = findings_of(inquiry.asked());
  inquiry.forget_unreached();
  if (inquiry.asked().size() > 1) {
    report.between = doctor::look_between(inquiry);
    append(report.findings, report.between.findings);
  }
  cluster::sort_by_severity(report.findings);
  fmt::print("{}", flags.json ? cluster::dumped(json_of(report)) : text_of(report));
  return std::ranges::any_of(report.findings, cluster::is_fault) ? kFailed : kGood;
}

}  // namespace

Command add_doctor(CLI::App& program) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* app = program.add_subcommand("doctor", kSummary);
  app->footer(kFooter);
  hosts::add_flags(*app, flags->which);
  app->add_flag("--json", flags->json, "Print everything that was seen, and found, as JSON");
  return {app, [flags] { return run_doctor(*flags); }};
}

}  // namespace mccl::cli
