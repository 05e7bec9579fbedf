#include "cli/config/flags.h"

#include "cli/flag_values.h"
#include "cluster/subnets.h"

namespace mccl::cli::config {
namespace {

constexpr const char* kFooter =
    R"(Asks all hosts at once over ssh what they are and what their cables lead to. Then it looks for the
ring through all hosts whose slowest cable is fastest (or says which cable would make one), gives
every cable that it uses a network of its own where it has none yet, and writes a hostfile for
mccl launch and mlx.launch. Several cables between two hosts are all used.

Thunderbolt cables are known by the names of their ports. To find cables of other kinds, the hosts
call to each other through every interface that is up. Each host must have mccl.

Nothing is changed without --auto-setup. With it, the commands are shown and you are asked. A script
that undoes everything is written first. When a command fails, what was done is undone. A host that
cannot be reached over a new connection after the set-up undoes its part by itself. Cables get
addresses from networks that neither a host nor this machine uses. The addresses are gone after a
restart of a host, except with --persist.

Examples:
  mccl config --hosts a,b,c,d                                what there is, and what to do
  mccl config --hosts a,b,c,d --output hosts.json --auto-setup --persist
  mccl launch --hostfile hosts.json train.py                 the job
  mccl config --hosts a,b,c,d --svg > cables.svg             a picture
  mccl config --hostfile desk.json --over ethernet           addresses in a network that all share
  mccl config --hosts a,b,c,d --backend jaccl                must be a mesh

Exit status: 0 good, 1 no such cabling, a host that cannot be asked, or a set-up that failed; 2 bad
arguments.)";

}  // namespace

void add_flags(CLI::App& app, ConfigFlags& flags) {
  app.footer(kFooter);
  hosts::add_flags(app, flags.which);
  app.add_flag("--ignore-unreachable", flags.ignore_unreachable,
               "Do without hosts that cannot be asked");
  app.add_option("--over", flags.over,
                 "thunderbolt; ethernet, a network that all are in; or cables, of\n"
                 "any kind, between two hosts each. Default: Thunderbolt where it\n"
                 "joins all, else cables where they make a ring and are as fast as\n"
                 "the network, else the network")
      ->check(one_of({"thunderbolt", "ethernet", "cables"}))
      ->option_text("KIND");
  app.add_option("--backend", flags.backend,
                 "Of MLX's, the one that the cables must do for: ring, jaccl or\n"
                 "jaccl-ring; default: what there is")
      ->check(one_of({"ring", "jaccl", "jaccl-ring"}))
      ->option_text("NAME");
  app.add_option("--output-hostfile,--output", flags.output,
                 "Where to write the hostfile; default: standard output")
      ->option_text("FILE");
  app.add_option("--env", flags.variables, "NAME=VALUE for all ranks; again for more")
      ->option_text("NAME=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  CLI::Option* setup = app.add_flag("--auto-setup", flags.auto_setup,
                                    "Give the cables their addresses, as root or by sudo");
  app.add_flag_callback(
         "--no-auto-setup", [] {}, "Do not (default)")
      ->excludes(setup)
      ->option_text(" ");
  setup->option_text(" ");
  app.add_flag("--yes", flags.sure, "Do not ask before hosts are changed")
      ->needs(setup)
      ->option_text(" ");
  app.add_flag("--persist", flags.persist,
               "Keep the addresses when a host restarts: a file or a connection for\n"
               "its netplan, NetworkManager, systemd-networkd or networksetup")
      ->needs(setup)
      ->option_text(" ");
  app.add_option("--revert-after", flags.revert_after_s,
                 "Seconds after which a host undoes its set-up unless this command has\n"
                 "reached it over a new connection; default 30")
      ->check(integer_between(1, 600))
      ->needs(setup)
      ->option_text("S");
  app.add_option("--subnet", flags.subnet,
                 "Where the networks of cables that have no addresses yet lie, such as\n"
                 "10.99.0.0/16; default: any private network that is free")
      ->check(cluster::fault_of_subnet)
      ->option_text("NETWORK");
  CLI::Option* dot =
      app.add_flag("--dot", flags.dot, "Print the cables for Graphviz, and do nothing else");
  CLI::Option* svg =
      app.add_flag("--svg", flags.svg,
                   "Print a picture of the cables (needs Graphviz), and do nothing else")
          ->excludes(dot);
  app.add_flag("--json", flags.json, "Print everything as JSON")->excludes(dot)->excludes(svg);
}

}  // namespace mccl::cli::config
