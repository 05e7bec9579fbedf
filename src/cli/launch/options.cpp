#include "cli/launch/options.h"

#include <fmt/format.h>

#include "cli/flag_values.h"
#include "cli/launch/ports.h"

namespace mccl::cli::launch {
namespace {

constexpr double kLongest = 31'536'000;

void add_where(CLI::App& app, Flags& flags) {
  CLI::Option* hosts = app.add_option("--hosts", flags.hosts,
                                      "Machines: [user@]name[:port], separated by commas; default\n"
                                      "127.0.0.1 (this machine)")
                           ->option_text("LIST");
  CLI::Option* file = app.add_option("--hostfile", flags.hostfile, "JSON file of machines")
                          ->option_text("FILE")
                          ->excludes(hosts);
  app.add_flag("--slurm", flags.slurm, "The machines of this Slurm allocation")
      ->excludes(hosts)
      ->excludes(file)
      ->option_text(" ");
  hosts->option_text("LIST");
  file->option_text("FILE");
  app.add_option("-n,--repeat-hosts,--ranks-per-host", flags.request.ranks_per_host,
                 "Ranks on each machine; default: the hostfile's slots, or 1")
      ->check(integer_between(1, kMostRanks))
      ->option_text("N");
  app.add_option("--user", flags.user, "User to log in as, for hosts without a user")
      ->option_text("NAME");
  app.add_option("--ssh-arg", flags.run.ssh_arguments, "One more argument for ssh; may be repeated")
      ->option_text("ARG")
      ->allow_extra_args(false)
      ->take_all();
  app.add_option("--silence", flags.silence,
                 "Seconds without a message from a machine, or from this machine to\nit, until it "
                 "counts as lost; default: twice MCCL_LIVENESS_INTERVAL")
      ->check(integer_between(1, static_cast<std::int64_t>(kLongest)))
      ->option_text("S");
  app.add_option("--patience", flags.run.patience,
                 fmt::format("Seconds that a machine may take to become ready; default {}",
                             flags.run.patience))
      ->check(integer_between(1, 3600))
      ->option_text("S");
}

void add_what(CLI::App& app, Flags& flags) {
  app.add_option("--env", flags.variables,
                 "NAME=VALUE for all ranks, or NAME for its value here; may be\nrepeated")
      ->option_text("NAME=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  app.add_option("--cwd", flags.request.directory,
                 "Directory to run in; default: this one, on all machines")
      ->option_text("DIR");
  app.add_option("--python", flags.request.python,
                 "Python for programs that end in .py, for python, and for -m\nMODULE; default: "
                 "the one beside mccl, or the first in PATH")
      ->option_text("PATH");
  app.add_flag("--mlx", flags.run.on_mccl,
               "Run unchanged MLX programs on MCCL, whatever command starts them\n(MCCL_MLX=1)")
      ->option_text(" ");
  app.add_option("--backend", flags.backend,
                 "MLX's own backend that the programs use: ring, jaccl, jaccl-ring,\nnccl, or mpi, "
                 "whose mpirun starts the ranks (Open MPI's or\nMPICH's, with "
                 "MCCL_BACKEND=mpi);\ndefault, any: nccl if MLX is built for CUDA, otherwise ring")
      ->option_text("NAME");
  app.add_option("--mpi-arg", flags.mpi_arguments,
                 "Arguments for mpirun, with --backend mpi, quoted as in a shell; may\nbe repeated")
      ->option_text("ARG")
      ->allow_extra_args(false)
      ->take_all();
  app.add_option("--connections-per-ip", flags.request.connections_per_address,
                 "Connections of MLX's ring per address; default 1")
      ->check(integer_between(1, 64))
      ->option_text("N");
  app.add_option("-p,--starting-port", flags.run.starting_port,
                 fmt::format("First port of MLX's ring; MCCL_ROOT and MASTER_PORT use the two\n"
                             "ports below it. Default: free ports if all ranks run on this\n"
                             "machine, else {} or the next free ports",
                             kUsualPort))
      ->check(integer_between(3, 65535))
      ->option_text("PORT");
  app.add_option("--nccl-port", flags.request.nccl_port, "NCCL_PORT of MLX's nccl; default 12345")
      ->check(integer_between(1, 65535))
      ->option_text("PORT");
}

void add_how(CLI::App& app, Flags& flags) {
  app.add_option("--bind-to", flags.bind_to,
                 "share (default): each rank runs on an equal part of the machine's\ncores; core: "
                 "on one core; none: on any core. Ranks are not bound if\nthere are more ranks "
                 "than cores, or OMP_PROC_BIND or taskset is used")
      ->option_text("HOW");
  CLI::Option* prefix =
      app.add_flag(
             "--prefix", flags.prefix,
             "Begin lines with [rank]; the default, except if only one rank\nwrites to a terminal")
          ->option_text(" ");
  app.add_flag("--no-prefix", flags.no_prefix, "Do not begin lines with [rank]")
      ->excludes(prefix)
      ->option_text(" ");
  prefix->option_text(" ");
  app.add_flag("--timestamps", flags.run.console.timestamps,
               "Begin lines with the time of their arrival: hours, minutes,\nseconds and "
               "milliseconds of this machine's clock")
      ->option_text(" ");
  app.add_option("--log-dir", flags.run.console.log_folder,
                 "Also write the output of rank N to rank-N.log, in a new folder of the\njob in "
                 "DIR; DIR/latest is a link to it")
      ->option_text("DIR");
  app.add_option("--stdin-to", flags.run.input_rank, "Give standard input to this rank only")
      ->check(integer_between(0, kMostRanks - 1))
      ->option_text("RANK");
  app.add_option("--timeout", flags.timeout, "End the job after this many seconds")
      ->check(number_between(0.001, kLongest))
      ->option_text("S");
  app.add_option("--max-restarts", flags.run.max_restarts,
                 "Start all ranks again after a failure, at most this many times;\ndefault 0. "
                 "Ranks get the number of the restart in\nTORCHELASTIC_RESTART_COUNT, from 0")
      ->check(integer_between(0, 1'000'000))
      ->option_text("N");
  app.add_option("--grace", flags.grace, "Seconds from SIGTERM to SIGKILL; default 5")
      ->check(number_between(0.0, 3600.0))
      ->option_text("S");
  app.add_flag("--dry-run", flags.dry_run, "Show what would run on each host, and start nothing");
  app.add_flag("--print-env", flags.print_environment,
               "Show the variables that each rank gets, and start nothing");
  app.add_flag("--print-python", flags.print_python, "Show the Python that runs .py files");
  app.add_option("--check", flags.check, "Check a hostfile, and show its hosts")
      ->option_text("FILE");
  app.add_flag("--verbose", flags.request.verbose,
               "Report the steps on each machine, also those of MLX's backend");
}

/// Rejects an empty value. It may be a shell variable that is not set, and would otherwise count as
/// an absent flag.
std::string complaint_of_empty(const std::string& text) {
  return text.empty()
             ? "the value is empty; is a shell variable unset? Omit the flag to use its default"
             : "";
}

}  // namespace

void add_flags(CLI::App& app, Flags& flags) {
  add_where(app, flags);
  add_what(app, flags);
  add_how(app, flags);
  for (const char* name : {"--hosts", "--hostfile", "--check", "--user", "--backend", "--cwd",
                           "--python", "--log-dir", "--bind-to"})
    app.get_option(name)->check(complaint_of_empty);
}

}  // namespace mccl::cli::launch
