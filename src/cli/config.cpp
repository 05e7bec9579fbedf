#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/environment.h"
#include "cli/command.h"
#include "cli/config/links.h"
#include "cli/hosts/inquiry.h"
#include "cli/hosts/setup_run.h"
#include "cli/kit/file.h"
#include "cli/kit/program.h"
#include "cli/probe/gather.h"
#include "cluster/checks.h"
#include "cluster/choice.h"
#include "cluster/links.h"
#include "cluster/setup.h"
#include "mccl/error.h"

namespace mccl::cli::config {
namespace {

using cluster::Addressed;
using cluster::HostFacts;
using cluster::SetupStep;
using cluster::Topology;

constexpr std::chrono::seconds kForOwnNetworks(15);
constexpr const char* kSummary = "Find the cables between hosts, set them up, and write a hostfile";

constexpr const char* kFooter =
    R"(Queries all hosts in parallel over ssh for their hardware, settings and cables. Then it
searches for the ring through all hosts whose slowest cable is fastest, or shows which cables would
complete a ring. Each chosen cable that has no addresses gets its own network. Finally, it writes a
hostfile for mccl launch and mlx.launch. If several cables join two hosts, all of them are used.

The UUIDs of the ports identify Thunderbolt cables. To find other cables, the hosts send test
packets to each other through every interface that is up. Each host must have mccl.

Nothing is changed without --auto-setup. With it, the commands are shown and need your consent. A
script that undoes everything is written first. If a command fails, the completed steps are undone.
A host that cannot be reached over a new connection after the set-up undoes its part by itself.
Cables get addresses from networks that neither a host nor this machine uses. The addresses are lost
when a host restarts, except with --persist.

Examples:
  mccl config --hosts a,b,c,d                                show the cables and the commands
  mccl config --hosts a,b,c,d --output hosts.json --auto-setup --persist
  mccl launch --hostfile hosts.json train.py                 run the job
  mccl config --hosts a,b,c,d --svg > cables.svg             draw a picture
  mccl config --hostfile desk.json --over ethernet           use a network that all hosts share
  mccl config --hosts a,b,c,d --backend jaccl                require a mesh

Exit status: 0 success; 1 no suitable cabling, a host that cannot be queried, or a failed set-up; 2
bad arguments.)";

void say(const std::string& text) { fmt::print(stderr, "mccl config: {}\n", text); }

/// State of one run of the command.
struct Cluster {
  std::vector<Host> hosts;
  std::vector<HostFacts> facts;
  Discovered found;
  std::vector<cluster::Finding> findings;
  std::vector<Addressed> links;
  std::vector<SetupStep> steps;  ///< Steps that give the cables addresses.
  /// Steps that make the addresses survive a restart (--persist).
  std::vector<SetupStep> keep_them;

  std::vector<SetupStep> all_steps() const {
    std::vector<SetupStep> all = steps;
    all.insert(all.end(), keep_them.begin(), keep_them.end());
    return all;
  }
};

/// Throws Error if a host was not reached and --ignore-unreachable is absent, or if none was.
void keep_reached(const ConfigFlags& flags, const std::vector<hosts::Asked>& asked,
                  Cluster& cluster) {
  std::string faults;
  for (const hosts::Asked& each : asked) {
    if (each.reached) {
      cluster.hosts.push_back(each.host);
      cluster.facts.push_back(each.facts);
      append(cluster.findings, each.facts.odd);
    } else {
      faults += fmt::format("\n  {}: {}", text_of(each.host), each.fault);
      if (each.needs_install) faults += "; " + cluster::how_to_install(each.host.name);
    }
  }
  if (faults.empty()) return;
  if (!flags.ignore_unreachable)
    throw Error("some hosts cannot be queried (--ignore-unreachable skips them):" + faults);
  if (cluster.hosts.empty()) throw Error("no host can be queried:" + faults);
  say("skipping hosts that cannot be queried:" + faults);
}

/// Checks the hosts and the flags before any host is queried.
void refuse_what_cannot_be_written(const ConfigFlags& flags, const std::vector<Host>& hosts) {
  if (hosts::each_once(hosts).size() < hosts.size())
    throw InvalidArgument(
        "a host is named twice; name each host once: \"slots\" in the hostfile sets its number of "
        "ranks");
  if (std::filesystem::is_directory(flags.output))
    throw InvalidArgument(
        fmt::format("{} is a folder; expected the name of the hostfile to write", flags.output));
  for (const std::string& variable : flags.variables) parse_variable("--env", variable);
  if ((flags.dot || flags.svg) && (flags.auto_setup || !flags.output.empty()))
    throw InvalidArgument(fmt::format(
        "--{0} prints a picture and does nothing else; leave --{0} out to use --{1}",
        flags.dot ? "dot" : "svg", flags.auto_setup ? "auto-setup" : "output-hostfile"));
  if (flags.svg && find_program("dot", path_of(process_environment())).empty())
    throw Error(
        "--svg: dot is not in PATH; install Graphviz (Debian: apt install graphviz; macOS: brew "
        "install graphviz), or run dot on the output of --dot on a machine that has it");
}

std::string commands_text(const Cluster& cluster) {
  const std::vector<SetupStep> steps = cluster.all_steps();
  std::string text;
  for (std::size_t host = 0; host < cluster.hosts.size(); ++host) {
    std::string of_host;
    for (const SetupStep& step : steps)
      if (step.host == static_cast<int>(host)) of_host += "  " + step.command + "\n";
    if (!of_host.empty()) text += fmt::format("on {}:\n{}", cluster.facts[host].host, of_host);
  }
  return text;
}

nlohmann::ordered_json entry_of(const Host& host, const cluster::HostfileEntry& entry) {
  // MLX passes the value of "ssh" to ssh, which accepts user@name, but not user@name:port.
  nlohmann::ordered_json json = {
      {"ssh", host.user.empty() ? host.name : host.user + "@" + host.name},
      {"ips", entry.ips},
      {"rdma", entry.rdma}};
  if (host.port != 0) json["port"] = host.port;
  if (host.slots) json["slots"] = *host.slots;
  if (!host.python.empty()) json["python"] = host.python;
  if (!host.directory.empty()) json["cwd"] = host.directory;
  if (!host.environment.empty()) json["env"] = host.environment;
  return json;
}

/// Names from hosts may contain any bytes.
std::string text_of(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Returns a hostfile for mccl launch and MLX, with one line per host. Takes addresses and RDMA
/// devices from `entries`, and all other settings from `hosts`.
std::string hostfile_text(std::span<const Host> hosts,
                          std::span<const cluster::HostfileEntry> entries,
                          const std::string& backend, const std::vector<std::string>& variables) {
  std::string text = "{\n";
  if (!backend.empty()) text += fmt::format("  \"backend\": {},\n", text_of(backend));
  text += fmt::format("  \"envs\": {},\n  \"hosts\": [\n", text_of(variables));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Host& host = hosts[static_cast<std::size_t>(entries[i].host)];
    text += fmt::format("    {}{}\n", text_of(entry_of(host, entries[i])),
                        i + 1 < entries.size() ? "," : "");
  }
  return text + "  ]\n}\n";
}

nlohmann::json json_of(const Cluster& cluster, const std::string& hostfile) {
  nlohmann::json links = nlohmann::json::array();
  const auto end_of = [&](const cluster::End& end) -> nlohmann::json {
    return {{"host", host_of(cluster.facts, end).host}, {"interface", end.interface}};
  };
  const auto with_ends = [](const auto& join, const nlohmann::json& ends) -> nlohmann::json {
    return {{"ends", ends}, {"kind", name_of(join.medium)}, {"mbit_per_s", join.mbit_per_s}};
  };
  for (const cluster::CableLink& link : cluster.found.joined.links)
    links.push_back(with_ends(link, {end_of(link.a), end_of(link.b)}));
  nlohmann::json networks = nlohmann::json::array();
  for (const cluster::Wire& wire : cluster.found.joined.networks) {
    nlohmann::json ends = nlohmann::json::array();
    for (const cluster::End& end : wire.ends) ends.push_back(end_of(end));
    networks.push_back(with_ends(wire, ends));
  }
  nlohmann::json steps = nlohmann::json::array();
  for (const SetupStep& step : cluster.all_steps())
    steps.push_back({{"host", cluster.facts[static_cast<std::size_t>(step.host)].host},
                     {"command", step.command},
                     {"undo", step.undo}});
  return {{"links", links},
          {"networks", networks},
          {"setup", steps},
          {"hostfile", hostfile.empty() ? nlohmann::json() : nlohmann::json::parse(hostfile)},
          {"findings", cluster.findings}};
}

/// Runs the steps. Returns the path of the script that undoes them.
std::string set_up(const ConfigFlags& flags, const Reaching& reaching, Signals& signals,
                   const Cluster& cluster) {
  const std::vector<SetupStep> all = cluster.all_steps();
  for (const SetupStep& step : all) {
    const HostFacts& facts = cluster.facts[static_cast<std::size_t>(step.host)];
    if (!facts.is_root && !facts.has_sudo)
      throw Error(
          fmt::format("{}: sudo on this host asks for a password, which cannot be entered; nothing "
                      "was changed. Log in as root, allow this user sudo without a password, or "
                      "run the commands by hand (without --auto-setup)",
                      facts.host));
  }
  const std::string wanted =
      flags.output.empty() ? "mccl-config.undo.sh" : flags.output + ".undo.sh";
  fmt::print(stderr, "These commands give the cables their addresses:\n{}", commands_text(cluster));
  std::string undo =
      hosts::agree_to({cluster.hosts, all}, wanted, flags.sure, reaching, signals, say);
  if (undo.empty()) throw Error("nothing was changed: you did not agree");
  const std::chrono::seconds revert_after(flags.revert_after_s);
  const hosts::SetupResult given =
      hosts::run_setup({cluster.hosts, cluster.steps, revert_after}, reaching, signals, say);
  if (!given.fault.empty()) throw Error(text_of(given, undo));
  // The addresses are made permanent only after every host was reached over a new connection.
  const hosts::SetupResult kept =
      hosts::run_setup({cluster.hosts, cluster.keep_them, revert_after}, reaching, signals, say);
  if (kept.fault.empty()) return undo;
  throw Error(kept.undone ? fmt::format("{}; the cables have addresses, but lose them when "
                                        "their hosts restart; sh {} removes the addresses now",
                                        kept.fault, undo)
                          : text_of(kept, undo));
}

/// Returns a table. An error leaves the addresses in place, so it names the undo script.
std::string try_links(hosts::Inquiry& inquiry, Cluster& cluster, const std::string& undo) {
  try {
    return exchange(inquiry, cluster.facts, cluster.found.choice, cluster.links, cluster.findings);
  } catch (const Error& error) {
    if (undo.empty()) throw;
    throw Error(fmt::format("{}; the cables keep their addresses; sh {} removes the addresses",
                            error.what(), undo));
  }
}

bool is_good(const Cluster& cluster) {
  return cluster.found.choice.shape != Topology::none &&
         cluster::worst_of(cluster.findings) != cluster::Severity::problem;
}

void draw(const std::string& graph) {
  std::fflush(stdout);
  FILE* const dot = ::popen("dot -Tsvg", "w");
  if (dot == nullptr) throw Error(fmt::format("cannot start dot: {}", std::strerror(errno)));
  std::fwrite(graph.data(), 1, graph.size(), dot);
  if (::pclose(dot) != 0) throw Error("dot -Tsvg failed; mccl config --dot prints its input");
}

/// Standard output gets only the picture, so that it can be piped.
int print_picture(const ConfigFlags& flags, Cluster& cluster) {
  const std::string text = dot_of(cluster.found.joined, cluster.facts);
  flags.svg ? draw(text) : fmt::print("{}", text);
  cluster::sort_by_severity(cluster.findings);
  fmt::print(stderr, "{}", cluster::text_of(cluster.findings));
  return is_good(cluster) ? kGood : kFailed;
}

void plan(const ConfigFlags& flags, hosts::Inquiry& inquiry, Cluster& cluster) {
  cluster.found = discover(flags, inquiry, cluster.facts, cluster.findings);
  append(cluster.findings, cluster.found.choice.findings);
  // --dot and --svg print only a picture, which shows no addresses, so none are chosen.
  if (flags.dot || flags.svg) return;
  const std::vector<HostFacts> here = {probe::gather_networks(kForOwnNetworks)};
  cluster.links = give_addresses(cluster.facts, cluster.found.choice.links,
                                 {.others = here, .within = cluster::parse_network(flags.subnet)});
  cluster.steps = setup_steps(cluster.facts, cluster.links);
  if (flags.persist) cluster.keep_them = persist_steps(cluster.facts, cluster.links);
}

int run_config(const ConfigFlags& flags) {
  const launch::Hostfile file = hosts_of(flags.which);
  refuse_what_cannot_be_written(flags, file.hosts);
  const Reaching reaching{process_environment(), flags.which.ssh_arguments, flags.verbose};
  Signals signals;
  hosts::Inquiry inquiry(file.hosts, reaching, signals, say);
  inquiry.gather(std::chrono::seconds(flags.which.patience));
  Cluster cluster;
  keep_reached(flags, inquiry.asked(), cluster);
  // Two names may refer to the same machine.
  if (const auto same = cluster::check_identity(cluster.facts); !same.empty())
    throw Error(fmt::format("{}: {}. {}", same[0].where, same[0].what, same[0].cure));
  hosts::refuse_unconfirmed(cluster.facts);
  inquiry.forget_unreached();
  plan(flags, inquiry, cluster);

  if (flags.dot || flags.svg) return print_picture(flags, cluster);
  const bool piped = flags.json;
  if (!piped) fmt::print("{}\n", table_of(cluster.found.joined, cluster.facts));
  std::string hostfile;
  const bool joined = cluster.found.choice.shape != Topology::none;
  if (joined) {
    bool ready = cluster.steps.empty() && cluster.keep_them.empty();
    std::string undo;
    if (!ready && flags.auto_setup) undo = set_up(flags, reaching, signals, cluster);
    ready = ready || !undo.empty();
    if (!ready && !piped)
      fmt::print("These commands give the cables their addresses (--auto-setup runs them):\n{}\n",
                 commands_text(cluster));
    std::vector<std::string> side = side_addresses(cluster.facts, cluster.found.joined);
    hostfile = hostfile_text(cluster.hosts,
                             entries_of(cluster.facts, cluster.found.choice, cluster.links, side),
                             cluster.found.choice.backend, flags.variables);
    if (ready) {
      const std::string table = try_links(inquiry, cluster, undo);
      if (!piped) fmt::print("{}\n", table);
    }
    if (!flags.output.empty()) write_keeping_old(flags.output, hostfile);
  }
  cluster::sort_by_severity(cluster.findings);
  if (flags.json) fmt::print("{}", cluster::dumped(json_of(cluster, hostfile)));
  fmt::print(stderr, "{}", cluster::text_of(cluster.findings));
  if (joined && !piped) {
    fmt::print("{}", flags.output.empty()
                         ? hostfile
                         : fmt::format("the hostfile {} is written\n", flags.output));
  }
  return is_good(cluster) ? kGood : kFailed;
}

void add_flags(CLI::App& app, ConfigFlags& flags) {
  app.footer(kFooter);
  add_host_flags(app, flags.which, "a host may take to report its facts");
  app.add_flag("--verbose", flags.verbose, "Report every connection that is tested");
  app.add_flag("--ignore-unreachable", flags.ignore_unreachable,
               "Skip hosts that cannot be queried");
  add_value(app, "--over KIND", flags.over,
            "thunderbolt; ethernet (a network that contains all hosts); or\n"
            "cables (of any kind, each between two hosts). Default: Thunderbolt\n"
            "if it joins all hosts, else cables if they form a ring and are as\n"
            "fast as the network, else the network",
            one_of({"thunderbolt", "ethernet", "cables"}));
  add_value(app, "--backend NAME", flags.backend,
            "MLX backend that the cables must support: ring, jaccl or\n"
            "jaccl-ring; default: chosen from the cables found",
            one_of({"ring", "jaccl", "jaccl-ring"}));
  add_value(app, "--output-hostfile,--output FILE", flags.output,
            "Where to write the hostfile; default: standard output");
  add_value(app, "--env NAME=VALUE", flags.variables, "NAME=VALUE for all ranks; may be repeated");
  CLI::Option* setup = app.add_flag("--auto-setup", flags.auto_setup,
                                    "Give the cables their addresses, as root or with sudo");
  app.add_flag_callback(
         "--no-auto-setup", [] {}, "Change nothing on the hosts (default)")
      ->excludes(setup)
      ->option_text(" ");
  setup->option_text(" ");
  app.add_flag("--yes", flags.sure, "Do not ask before hosts are changed")
      ->needs(setup)
      ->option_text(" ");
  app.add_flag("--persist", flags.persist,
               "Keep the addresses when a host restarts: adds a file or a connection\n"
               "for its netplan, NetworkManager, systemd-networkd or networksetup")
      ->needs(setup)
      ->option_text(" ");
  add_value(app, "--revert-after S", flags.revert_after_s,
            "Seconds after which a host undoes its set-up if this command has not\n"
            "reached the host over a new connection; default 30",
            integer_between(1, 600))
      ->needs(setup);
  add_value(app, "--subnet NETWORK", flags.subnet,
            "Range for the networks of cables without addresses, such as\n"
            "10.99.0.0/16; default: any private network that is free",
            cluster::fault_of_subnet);
  CLI::Option* dot = app.add_flag("--dot", flags.dot,
                                  "Print the cables as input for Graphviz, and do nothing else");
  CLI::Option* svg =
      app.add_flag("--svg", flags.svg,
                   "Print a picture of the cables (needs Graphviz), and do nothing else")
          ->excludes(dot);
  app.add_flag("--json", flags.json, "Print everything as JSON")->excludes(dot)->excludes(svg);
}

}  // namespace

Command add(CLI::App& program) {
  const auto flags = std::make_shared<ConfigFlags>();
  CLI::App* app = program.add_subcommand("config", kSummary);
  add_flags(*app, *flags);
  return {app, [flags] { return run_config(*flags); }};
}

}  // namespace mccl::cli::config
