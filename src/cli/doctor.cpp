#include "cli/doctor.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/environment.h"
#include "cli/doctor/report.h"
#include "cli/hosts/inquiry.h"
#include "cli/hosts/which.h"
#include "cluster/cluster_check.h"
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

std::vector<Finding> findings_of(const std::vector<Asked>& asked) {
  std::vector<Finding> findings;
  std::vector<cluster::HostFacts> reached;
  const auto add = [&](std::vector<Finding> more) {
    findings.insert(findings.end(), more.begin(), more.end());
  };
  for (const Asked& each : asked) {
    if (!each.reached) {
      findings.push_back(unreachable(each));
      continue;
    }
    add(cluster::check_machine(each.facts));
    add(cluster::check_settings(each.facts));
    reached.push_back(each.facts);
  }
  add(cluster::check_cluster(reached));
  cluster::sort_by_severity(findings);
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
  const std::vector<Finding> findings = findings_of(inquiry.asked());
  fmt::print("{}", flags.json ? doctor::json_of(inquiry.asked(), findings).dump(2) + "\n"
                              : doctor::text_of(inquiry.asked(), findings));
  return std::ranges::any_of(findings, cluster::is_fault) ? kFailed : kGood;
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
