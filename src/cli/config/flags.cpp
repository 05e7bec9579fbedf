#include "cli/config/flags.h"

#include "cli/flag_values.h"
#include "cluster/subnets.h"

namespace mccl::cli::config {
namespace {

constexpr const char* kFooter =
    R"(Queries all hosts in parallel over ssh: what they are, and where their cables lead. Then it
searches for the ring through all hosts whose slowest cable is fastest, or shows which cable would
make one. It gives every cable that it uses its own network, unless the cable already has one.
Finally, it writes a hostfile for mccl launch and mlx.launch. All cables between two hosts are used.

The names of the ports identify Thunderbolt cables. To find other cables, the hosts send test
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

Exit status: 0 success; 1 no such cabling, a host that cannot be queried, or a failed set-up; 2 bad
arguments.)";

}  // namespace

void add_flags(CLI::App& app, ConfigFlags& flags) {
  app.footer(kFooter);
  hosts::add_flags(app, flags.which);
  app.add_flag("--ignore-unreachable", flags.ignore_unreachable,
               "Skip hosts that cannot be queried");
  app.add_option("--over", flags.over,
                 "thunderbolt; ethernet (a network that contains all hosts); or\n"
                 "cables (of any kind, each between two hosts). Default: Thunderbolt\n"
                 "if it joins all hosts, else cables if they form a ring and are as\n"
                 "fast as the network, else the network")
      ->check(one_of({"thunderbolt", "ethernet", "cables"}))
      ->option_text("KIND");
  app.add_option("--backend", flags.backend,
                 "MLX backend that the cables must support: ring, jaccl or\n"
                 "jaccl-ring; default: chosen from the cables found")
      ->check(one_of({"ring", "jaccl", "jaccl-ring"}))
      ->option_text("NAME");
  app.add_option("--output-hostfile,--output", flags.output,
                 "Where to write the hostfile; default: standard output")
      ->option_text("FILE");
  app.add_option("--env", flags.variables, "NAME=VALUE for all ranks; may be repeated")
      ->option_text("NAME=VALUE")
      ->allow_extra_args(false)
      ->take_all();
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
  app.add_option("--revert-after", flags.revert_after_s,
                 "Seconds after which a host undoes its set-up unless this command has\n"
                 "reached it over a new connection; default 30")
      ->check(integer_between(1, 600))
      ->needs(setup)
      ->option_text("S");
  app.add_option("--subnet", flags.subnet,
                 "Range for the networks of cables without addresses, such as\n"
                 "10.99.0.0/16; default: any private network that is free")
      ->check(cluster::fault_of_subnet)
      ->option_text("NETWORK");
  CLI::Option* dot = app.add_flag("--dot", flags.dot,
                                  "Print the cables as input for Graphviz, and do nothing else");
  CLI::Option* svg =
      app.add_flag("--svg", flags.svg,
                   "Print a picture of the cables (needs Graphviz), and do nothing else")
          ->excludes(dot);
  app.add_flag("--json", flags.json, "Print everything as JSON")->excludes(dot)->excludes(svg);
}

}  // namespace mccl::cli::config
