#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "cli/command.h"
#include "cli/doctor/report.h"
#include "cli/hosts/inquiry.h"
#include "cli/hosts/setup_run.h"
#include "cli/kit/file.h"
#include "cluster/checks.h"
#include "cluster/read_facts.h"
#include "cluster/text.h"
#include "mccl/error.h"

namespace mccl::cli::doctor {
namespace {

using cluster::Finding;
using cluster::HostFacts;
using cluster::Interface;
using cluster::Severity;
using hosts::Asked;
using nlohmann::json;
using Rows = cluster::TableRows;

constexpr const char* kSummary = "Find faults of this machine or a cluster before a run";

constexpr const char* kFooter =
    R"(Every finding names the fault, its place, its consequence, and the command that cures it. A
problem makes a job fail, now or later. A warning makes a job slower or less reliable. A note needs
no action. Nothing is changed on any machine without --fix.

One machine: shared memory, limits of open files and locked memory, cores, interfaces, RDMA devices,
GPUs, and settings in the environment that MCCL would refuse.
Several machines, over ssh: the same, and versions, clocks, settings that must agree, addresses, and
real connections to every address that should be reachable, in both directions, on ports that a job
uses. The connections show the size of packets that arrive, and the latency and rate of each link.
Each machine must have mccl.

Examples:
  mccl doctor                            this machine
  mccl doctor --hosts a,b,me@c:2222      three machines and their connections
  mccl doctor --hostfile desk.json       the machines of a job
  mccl doctor --hostfile desk.json --json > cluster.json
  mccl doctor --hosts a,b --fix          cure what can be cured, then check again
  mccl doctor --selftest                 test all of this machine; one file for a report
  mccl doctor --hosts a,b || echo "faults found"

Exit status: 0 no faults (there may be notes), 1 problems, 2 bad arguments, 3 only warnings.)";

struct DoctorFlags {
  WhichHosts which;
  bool verbose = false;
  bool json = false;
  bool fix = false;
  bool sure = false;
  bool selftest = false;
  Measuring measuring;
  std::string output = "mccl-selftest.json";
};

/// Incremented when a member of the JSON (docs/operating.md) changes its meaning or is removed.
constexpr int kSchema = 1;

std::string limit_text(const std::optional<long>& limit) {
  if (!limit) return "?";
  return *limit == cluster::kNoLimit ? "unlimited" : std::to_string(*limit);
}

/// NCCL's packages have names that begin with "nvidia-nccl".
std::string version_of(const HostFacts& facts, std::string_view name) {
  for (const auto& [package, version] : facts.versions)
    if (package == name || (name == "nccl" && package.starts_with("nvidia-nccl"))) return version;
  return "-";
}

Rows rows_of_hosts(const std::vector<Asked>& asked) {
  Rows rows = {{"host", "system", "cores", "memory", "files", "locked", "mccl", "python", "torch",
                "mlx", "nccl", "GPUs"}};
  for (const Asked& each : asked) {
    if (!each.reached) continue;
    const HostFacts& facts = each.facts;
    rows.push_back({facts.host, facts.os, std::to_string(facts.cores),
                    fmt::format("{:.0f} GiB", facts.memory_gib), limit_text(facts.most_open_files),
                    facts.locked_kib && *facts.locked_kib != cluster::kNoLimit
                        ? fmt::format("{} KiB", *facts.locked_kib)
                        : limit_text(facts.locked_kib),
                    version_of(facts, "mccl"), version_of(facts, "python"),
                    version_of(facts, "torch"), version_of(facts, "mlx"), version_of(facts, "nccl"),
                    std::to_string(facts.gpus.size())});
  }
  return rows;
}

std::string addresses_of(const Interface& interface) {
  std::vector<std::string> texts;
  for (const auto& network : interface.addresses) texts.push_back(text_of(network));
  return texts.empty() ? "-" : fmt::format("{}", fmt::join(texts, " "));
}

Rows rows_of_interfaces(const std::vector<Asked>& asked) {
  Rows rows = {{"host", "interface", "kind", "state", "speed", "MTU", "addresses", "RDMA"}};
  for (const Asked& each : asked) {
    for (const Interface& interface : each.facts.interfaces) {
      if (interface.kind == cluster::InterfaceKind::loopback) continue;
      // Omits bridges and tunnels that have no IPv4 address: macOS has many of them.
      if (interface.joins && !interface.has_ipv4()) continue;
      rows.push_back({each.facts.host, interface.name, std::string(name_of(interface.kind)),
                      interface.usable() ? "up"
                      : interface.up     ? "no carrier"
                                         : "down",
                      cluster::rate_text(interface.mbit_per_s), std::to_string(interface.mtu),
                      addresses_of(interface), interface.rdma.empty() ? "-" : interface.rdma});
    }
  }
  return rows;
}

json json_of_paths(const Report& report) {
  const std::vector<HostFacts> facts = facts_of(report.asked);
  json paths = json::array();
  for (const cluster::InterfacePath& path : report.paths) {
    paths.push_back({{"from", host_of(facts, path.from).host},
                     {"from_interface", path.from.interface},
                     {"from_address", path.source},
                     {"routed", path.routed},
                     {"to", host_of(facts, path.to).host},
                     {"to_interface", path.to.interface},
                     {"to_address", path.target},
                     {"hardware_mbit_per_s", path.nominal_mbit},
                     {"mtu", path.mtu},
                     {"tried", path.tried},
                     {"connects", path.good()},
                     {"largest_packet", path.packet},
                     {"latency_us", path.latency_s * 1e6},
                     {"mbit_per_s", path.bytes_per_s * 8 / 1e6}});
  }
  return paths;
}

std::string text_of(const Report& report) {
  std::string text = cluster::table_text(rows_of_hosts(report.asked));
  text += "\n" + cluster::table_text(rows_of_interfaces(report.asked)) + "\n";
  const std::string paths = table_of(report.paths, facts_of(report.asked));
  if (!paths.empty()) text += paths + "\n";
  text += cluster::text_of(report.findings);
  const auto faults = std::ranges::count_if(report.findings, cluster::is_fault);
  return text + (faults == 0 ? "no faults found\n" : fmt::format("faults found: {}\n", faults));
}

json json_of(const Report& report) {
  json hosts = json::array();
  for (const Asked& each : report.asked) {
    json host = each.reached ? json_of(each.facts) : json{{"fault", each.fault}};
    host["host"] = text_of(each.host);
    host["reached"] = each.reached;
    hosts.push_back(std::move(host));
  }
  return {{"schema", kSchema},
          {"mccl", MCCL_VERSION},
          {"hosts", hosts},
          {"paths", json_of_paths(report)},
          {"findings", report.findings}};
}

std::vector<Finding> findings_of(const std::vector<Asked>& asked) {
  std::vector<Finding> findings;
  const std::vector<HostFacts> reached = facts_of(asked);
  std::vector<std::vector<std::string>> addresses;
  for (const Asked& each : asked) {
    if (!each.reached) {
      findings.push_back(finding_of_unreached(each));
      continue;
    }
    append(findings, cluster::check_machine(each.facts));
    append(findings, cluster::check_settings(each.facts));
    addresses.push_back(each.host.addresses);
  }
  append(findings, cluster::check_cluster(reached));
  append(findings, cluster::check_hostfile(reached, addresses));
  return findings;
}

/// Returns a step for each finding that a command can fix, if the user is root on the finding's
/// host or can use sudo there without a password.
std::vector<cluster::SetupStep> fixes_of(const Report& report) {
  std::vector<cluster::SetupStep> steps;
  for (const Finding& finding : report.findings) {
    const auto asked = std::ranges::find_if(report.asked, [&](const Asked& each) {
      return each.facts.host == finding.where && (each.facts.is_root || each.facts.has_sudo);
    });
    if (finding.fix.empty() || asked == report.asked.end()) continue;
    steps.push_back(cluster::step_of(static_cast<int>(asked - report.asked.begin()), asked->facts,
                                     finding.fix, finding.undo));
  }
  return steps;
}

void say(const std::string& text) { fmt::print(stderr, "mccl doctor: {}\n", text); }

/// Shows the commands, asks the user unless `sure`, and runs them. If one fails, undoes the others
/// as far as possible and throws Error. Returns false if nothing was done.
bool fix_findings(const Report& report, const Reaching& reaching, Signals& signals, bool sure) {
  const std::vector<cluster::SetupStep> steps = fixes_of(report);
  if (steps.empty()) {
    say("no finding can be cured automatically");
    return false;
  }
  std::vector<Host> all;
  for (const Asked& asked : report.asked) {
    hosts::refuse_unconfirmed({&asked.facts, 1});
    all.push_back(asked.host);
  }
  fmt::print(stderr, "These commands cure {} of the findings:\n", steps.size());
  for (const cluster::SetupStep& step : steps)
    fmt::print(stderr, "  on {}: {}\n", text_of(all[static_cast<std::size_t>(step.host)]),
               step.command);
  const hosts::SetupPlan plan{.hosts = all, .steps = steps};
  const std::string undo =
      hosts::agree_to(plan, "mccl-doctor.undo.sh", sure, reaching, signals, say);
  if (undo.empty()) return false;
  const hosts::SetupResult result = hosts::run_setup(plan, reaching, signals, say);
  if (!result.fault.empty()) throw Error(text_of(result, undo));
  return true;
}

Report look(const DoctorFlags& flags, const std::vector<Host>& all, const Reaching& reaching,
            Signals& signals) {
  hosts::Inquiry inquiry(all, reaching, signals, say);
  inquiry.gather(std::chrono::seconds(flags.which.patience));
  Report report;
  report.asked = inquiry.asked();
  report.findings = findings_of(inquiry.asked());
  inquiry.forget_unreached();
  // A machine with two names would be tested against itself.
  if (inquiry.asked().size() > 1 && cluster::check_identity(facts_of(inquiry.asked())).empty())
    report.paths = look_between(inquiry, flags.measuring, report.findings);
  cluster::sort_by_severity(report.findings);
  return report;
}

int run_doctor(const DoctorFlags& flags) {
  if (flags.selftest) check_writable("--output", flags.output);
  const std::vector<Host> entries = hosts_of(flags.which).hosts;
  const std::vector<Host> all = hosts::each_once(entries);
  const Reaching reaching{process_environment(), flags.which.ssh_arguments, flags.verbose};
  Signals signals;
  Report report = look(flags, all, reaching, signals);
  fmt::print("{}", flags.json ? cluster::dumped(json_of(report)) : text_of(report));
  std::fflush(stdout);
  if (flags.fix && fix_findings(report, reaching, signals, flags.sure)) {
    report = look(flags, all, reaching, signals);
    fmt::print("\nChecked again:\n{}", text_of(report));
  }
  if (flags.selftest &&
      !run_selftest(flags.which, entries, report, json_of(report), flags.output, signals))
    return kFailed;
  const auto worst = cluster::worst_of(report.findings);
  if (!worst) return kGood;
  return *worst == Severity::problem ? kFailed : kWarned;
}

}  // namespace

Command add(CLI::App& program) {
  const auto flags = std::make_shared<DoctorFlags>();
  CLI::App* app = program.add_subcommand("doctor", kSummary);
  app->footer(kFooter);
  add_host_flags(*app, flags->which, "a host may take to report its facts");
  app->add_flag("--verbose", flags->verbose, "Report every connection that is tested");
  CLI::Option* json = app->add_flag("--json", flags->json, "Print all facts and findings as JSON");
  CLI::Option* fix = app->add_flag("--fix", flags->fix,
                                   "Cure what can be cured safely, if you agree: interfaces that\n"
                                   "are down, and MTUs that are too small. A script can undo\n"
                                   "the changes")
                         ->excludes(json)
                         ->option_text(" ");
  app->add_flag("--yes", flags->sure, "Do not ask before hosts are changed")
      ->needs(fix)
      ->option_text(" ");
  Measuring& measuring = flags->measuring;
  CLI::Option* measure =
      app->add_flag_callback(
             "--measure", [&measuring] { measuring.when = Measuring::When::always; },
             "Time all links; default: only links between hosts where no job runs")
          ->option_text(" ");
  app->add_flag_callback(
         "--no-measure", [&measuring] { measuring.when = Measuring::When::never; },
         "Do not time any link")
      ->excludes(measure)
      ->option_text(" ");
  add_value(*app, "--measure-for S", measuring.longest_s,
            "Seconds after which no further link is timed; default 120",
            integer_between(1, 86'400));
  CLI::Option* selftest =
      app->add_flag("--selftest", flags->selftest,
                    "After these checks, run every collective, transport and framework\n"
                    "that is available; takes minutes")
          ->excludes(json)
          ->option_text(" ");
  add_value(*app, "--output FILE", flags->output,
            "File for all results of --selftest; default\n" + flags->output)
      ->needs(selftest);
  return {app, [flags] { return run_doctor(*flags); }};
}

}  // namespace mccl::cli::doctor
