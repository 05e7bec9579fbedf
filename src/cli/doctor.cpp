#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/environment.h"
#include "cli/command.h"
#include "cli/doctor/between.h"
#include "cli/doctor/report.h"
#include "cli/doctor/selftest.h"
#include "cli/flag_values.h"
#include "cli/hosts/consent.h"
#include "cli/hosts/inquiry.h"
#include "cli/hosts/which.h"
#include "cli/kit/find_program.h"
#include "cluster/checks.h"
#include "mccl/error.h"
#include "rendezvous/connections/proof.h"

namespace mccl::cli {
namespace {

using cluster::Finding;
using cluster::Severity;
using hosts::Asked;

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
  mccl doctor --hosts a,b --fix          cure what is possible, check again; a script undoes it
  mccl doctor --selftest                 test all of this machine; one file for a report
  mccl doctor --hosts a,b || echo "not today"

Exit status: 0 no faults (there may be notes), 1 problems, 2 bad arguments, 3 only warnings.)";

struct Flags {
  hosts::WhichHosts which;
  bool json = false;
  bool fix = false;
  bool sure = false;
  bool selftest = false;
  bool measure = false;
  bool no_measure = false;
  int longest_measuring = 120;
  std::string output = "mccl-selftest.json";
};

void append(std::vector<Finding>& findings, std::vector<Finding> more) {
  findings.insert(findings.end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
}

/// Returns the findings about each host by itself, and those from a comparison of all hosts.
std::vector<Finding> findings_of(const std::vector<Asked>& asked) {
  std::vector<Finding> findings;
  std::vector<cluster::HostFacts> reached;
  std::vector<std::vector<std::string>> addresses;
  for (const Asked& each : asked) {
    if (!each.reached) {
      findings.push_back(finding_of_unreached(each));
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

/// True if no machine appears under two names. Such a machine would be tested against itself.
bool are_all_others(const hosts::Inquiry& inquiry) {
  std::vector<cluster::HostFacts> facts;
  for (const Asked& asked : inquiry.asked()) facts.push_back(asked.facts);
  return cluster::check_identity(facts).empty();
}

/// Returns flags of mccl launch for the same hosts. Empty if there is only this machine.
std::vector<std::string> flags_of_launch(const hosts::WhichHosts& which) {
  std::vector<std::string> words;
  if (!which.hostfile.empty()) words = {"--hostfile", which.hostfile};
  if (!which.hosts.empty()) words = {"--hosts", which.hosts};
  if (words.empty()) return words;
  if (!which.user.empty()) words.insert(words.end(), {"--user", which.user});
  for (const std::string& word : which.ssh_arguments) words.push_back("--ssh-arg=" + word);
  return words;
}

/// Returns the rate in GB/s of the slowest pair of hosts, given the fastest path of each pair.
/// Returns 0 if none was measured.
double slowest_pair(const doctor::Report& report) {
  std::map<std::pair<int, int>, double> best;
  for (const cluster::Path& path : report.between.paths) {
    double& rate = best[std::minmax(path.from.host, path.to.host)];
    rate = std::max(rate, path.bytes_per_s / 1e9);
  }
  double slowest = 0;
  for (const auto& [pair, rate] : best)
    if (rate > 0 && (slowest == 0 || rate < slowest)) slowest = rate;
  return slowest;
}

doctor::Others others_of(const hosts::WhichHosts& which, const doctor::Report& report) {
  doctor::Others others{.flags = flags_of_launch(which),
                        .programs = {},
                        .bound_gbs = slowest_pair(report),
                        .rdma_gbs = {}};
  bool all_have_rdma = true;
  for (const Asked& asked : report.asked) {
    const std::string& program = asked.facts.mccl;
    if (!program.empty() && std::ranges::find(others.programs, program) == others.programs.end())
      others.programs.push_back(program);
    const auto rdma = doctor::rdma_gbs_of(asked.facts);
    all_have_rdma = all_have_rdma && rdma.has_value();
    if (rdma) others.rdma_gbs = std::min(*rdma, others.rdma_gbs.value_or(*rdma));
  }
  if (!all_have_rdma) others.rdma_gbs.reset();
  return others;
}

doctor::ThisMachine this_machine(const doctor::Report& report,
                                 const hosts::Variables& environment) {
  const auto path = environment.find("PATH");
  doctor::ThisMachine machine{
      .program = this_program().string(),
      .python = find_python(path == environment.end() ? "" : path->second),
      .cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency())),
      .rdma_gbs = {}};
  for (const Asked& asked : report.asked)
    if (is_here(asked.host)) machine.rdma_gbs = doctor::rdma_gbs_of(asked.facts);
  return machine;
}

/// A temporary folder that its destructor removes.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("mccl-selftest-" + rendezvous::make_job_key().substr(0, 12))) {
    std::filesystem::create_directory(path_);
  }
  ~Folder() {
    std::error_code gone;
    std::filesystem::remove_all(path_, gone);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// Runs all trials and writes all results to the file. Returns true if no trial failed.
bool run_selftest(const Flags& flags, const doctor::Report& report, Signals& signals) {
  const hosts::Variables environment = process_environment();
  const Folder folder;
  const std::vector<doctor::Trial> trials = doctor::selftest_trials(
      this_machine(report, environment), others_of(flags.which, report), folder.path());
  std::vector<doctor::Outcome> outcomes;
  for (const doctor::Trial& trial : trials) {
    fmt::print(stderr, "mccl doctor: {} of {}: {}\n", outcomes.size() + 1, trials.size(),
               trial.name);
    outcomes.push_back(run_trial(trial, environment, signals));
  }
  fmt::print("\n{}", text_of(trials, outcomes));
  nlohmann::json all = json_of(report);
  all["selftest"] = json_of(trials, outcomes);
  std::ofstream file(flags.output, std::ios::binary);
  file << cluster::dumped(all);
  file.close();
  if (!file) throw Error(fmt::format("{}: {}", flags.output, std::strerror(errno)));
  fmt::print("\n{} contains all results: attach it to a report\n", flags.output);
  return std::ranges::none_of(outcomes, [](const doctor::Outcome& outcome) {
    return outcome.kind == doctor::Outcome::Kind::failed;
  });
}

/// Returns a step for each finding that a command can fix, if the command may be run on its host.
std::vector<cluster::SetupStep> fixes_of(const doctor::Report& report) {
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

/// Fixes the faults that can be fixed safely: shows the commands, asks on standard input unless
/// `sure`, and runs them. Either all take effect or none. Returns true if something was changed.
/// Throws Error if a command fails.
bool fix_findings(const doctor::Report& report, const hosts::Reaching& reaching, Signals& signals,
                  bool sure) {
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

doctor::Measuring measuring_of(const Flags& flags) {
  using When = doctor::Measuring::When;
  When when = When::where_no_job_runs;
  if (flags.measure) when = When::always;
  if (flags.no_measure) when = When::never;
  return {when, std::chrono::seconds(flags.longest_measuring)};
}

doctor::Report look(const Flags& flags, const std::vector<Host>& all,
                    const hosts::Reaching& reaching, Signals& signals) {
  hosts::Inquiry inquiry(all, reaching, signals, say);
  inquiry.gather(std::chrono::seconds(flags.which.patience));
  doctor::Report report;
  report.asked = inquiry.asked();
  report.findings = findings_of(inquiry.asked());
  inquiry.forget_unreached();
  if (inquiry.asked().size() > 1 && are_all_others(inquiry)) {
    report.between = doctor::look_between(inquiry, measuring_of(flags));
    append(report.findings, report.between.findings);
  }
  cluster::sort_by_severity(report.findings);
  return report;
}

int run_doctor(const Flags& flags) {
  const std::vector<Host> all = hosts::each_once(hosts::hosts_of(flags.which).hosts);
  const hosts::Reaching reaching{process_environment(), flags.which.ssh_arguments,
                                 flags.which.verbose};
  Signals signals;
  doctor::Report report = look(flags, all, reaching, signals);
  fmt::print("{}", flags.json ? cluster::dumped(json_of(report)) : text_of(report));
  std::fflush(stdout);
  if (flags.fix && fix_findings(report, reaching, signals, flags.sure)) {
    report = look(flags, all, reaching, signals);
    fmt::print("\nChecked again:\n{}", text_of(report));
  }
  if (flags.selftest && !run_selftest(flags, report, signals)) return kFailed;
  const auto worst = cluster::worst_of(report.findings);
  if (!worst) return kGood;
  return *worst == Severity::problem ? kFailed : kWarned;
}

}  // namespace

Command add_doctor(CLI::App& program) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* app = program.add_subcommand("doctor", kSummary);
  app->footer(kFooter);
  hosts::add_flags(*app, flags->which);
  CLI::Option* json = app->add_flag("--json", flags->json, "Print all facts and findings as JSON");
  CLI::Option* fix = app->add_flag("--fix", flags->fix,
                                   "Cure what can be cured safely, after a question: interfaces\n"
                                   "that are down, and MTUs that are too small")
                         ->excludes(json)
                         ->option_text(" ");
  app->add_flag("--yes", flags->sure, "Do not ask")->needs(fix)->option_text(" ");
  CLI::Option* measure =
      app->add_flag("--measure", flags->measure,
                    "Time all links; default: only those of hosts where no job runs")
          ->option_text(" ");
  app->add_flag("--no-measure", flags->no_measure, "Do not time any link")
      ->excludes(measure)
      ->option_text(" ");
  app->add_option("--measure-for", flags->longest_measuring,
                  "Seconds after which no further link is timed; default 120")
      ->check(integer_between(1, 86'400))
      ->option_text("S");
  CLI::Option* selftest =
      app->add_flag("--selftest", flags->selftest,
                    "Then run every collective, transport and framework that is\n"
                    "available; takes minutes")
          ->excludes(json)
          ->option_text(" ");
  app->add_option("--output", flags->output,
                  "File for all results of --selftest; default\n" + flags->output)
      ->needs(selftest)
      ->option_text("FILE");
  return {app, [flags] { return run_doctor(*flags); }};
}

}  // namespace mccl::cli
