#include "cli/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/value_text.h"
#include "cli/launch/free_ports.h"
#include "cli/launch/hostfile.h"
#include "cli/launch/job.h"
#include "cli/launch/mpi.h"
#include "cli/launch/python.h"
#include "cli/launch/report.h"
#include "cli/launch/run.h"
#include "cli/launch/slurm.h"
#include "cli/launch/words.h"
#include "cli/named.h"
#include "mccl/error.h"
#include "rendezvous/job_key.h"

namespace mccl::cli {
namespace {

using namespace launch;

constexpr int kMostRanks = 4096;
constexpr double kLongest = 31'536'000;

constexpr const char* kSummary = "Start a job on this machine, on others, or under Slurm";

constexpr const char* kFooter =
    R"(Everything after the program's name is the program's own; -- ends the flags where that is unclear.
A program whose name ends in .py runs under Python. Every rank finds in its environment who it is
and where the others are: for MCCL, for MLX and for torch (--print-env shows it).

The first rank that fails ends the job: the others get SIGTERM, and SIGKILL after --grace. So do
SIGINT, SIGTERM and SIGHUP to the launcher. Other machines need ssh without a password, a shell and
the program; nothing of MCCL's is copied there.

On a terminal, what you type goes to all ranks, and Ctrl-C ends the job. With --stdin-to, or when
there is one rank, that rank gets every key, Ctrl-C and Ctrl-D too, as if it ran alone: for
breakpoint().

Examples:
  mccl launch -n 4 train.py --epochs 3            four ranks on this machine
  mccl launch --hosts a,b,me@c:2222 train.py      one rank on each of three machines
  mccl launch --hostfile desk.json -- ./program   as a file says (docs/LAUNCH.md has its form)
  mccl launch -n 2 --stdin-to 1 debug.py          with a debugger in rank 1
  mccl launch --slurm train.py                    on the machines of this Slurm allocation
  mccl launch --hosts a,b --dry-run train.py      what would run where
  mccl launch --check desk.json                   is the file right?

Exit status: 0 good; that of the rank that failed first, 128 + the signal's number when it was
killed, 255 when its machine was lost; 128 + the number of a signal that ended the launcher; 124
after --timeout; 141 when nobody reads the output any more; 1 when the job could not be started or
its output not be written (a full disk); 2 bad arguments.)";

/// As given; empty or absent where the default holds.
struct Flags {
  std::string hosts;
  std::string hostfile;
  std::string check;
  bool slurm = false;
  std::optional<int> ranks_per_host;
  std::string user;
  std::string backend;
  std::vector<std::string> variables;
  std::vector<std::string> mpi_arguments;
  std::vector<std::string> ssh_arguments;
  std::string directory;
  std::string python;
  int connections_per_address = 1;
  std::optional<int> starting_port;
  int nccl_port = 12345;
  bool prefix = false;
  bool no_prefix = false;
  std::string log_folder;
  std::optional<int> input_rank;
  std::optional<double> timeout;
  double grace = 5;
  bool dry_run = false;
  bool print_environment = false;
  bool print_python = false;
  bool verbose = false;
};

/// The hosts, with what the hostfile says for all of them.
Hostfile hosts_of(const Flags& flags, const Variables& inherited) {
  Hostfile file;
  if (!flags.hostfile.empty()) {
    file = read_hostfile(flags.hostfile);
  } else if (flags.slurm) {
    file.hosts = hosts_of_allocation(inherited);
  } else if (!flags.hosts.empty()) {
    file.hosts = parse_hosts("--hosts", flags.hosts);
  } else {
    file.hosts = {Host{}};
  }
  for (Host& host : file.hosts)
    if (!flags.user.empty() && host.user.empty() && !is_here(host)) host.user = flags.user;
  return file;
}

Backend backend_of(const Flags& flags, const Hostfile& file) {
  const bool flag = !flags.backend.empty();
  const std::string& name = flag ? flags.backend : file.backend;
  if (name.empty()) return Backend::any;
  const auto backend =
      kind_of<Backend>(flag ? "--backend" : flags.hostfile + ".backend", name, kBackendCount);
  const bool jaccl = backend == Backend::jaccl || backend == Backend::jaccl_ring;
  if (jaccl && !file.hosts.front().rdma.is_array()) {
    throw InvalidArgument(
        fmt::format("{} needs \"rdma\" devices for every host; give them in a --hostfile", name));
  }
  return backend;
}

/// NAME=VALUE, or NAME for what it is here.
Variables variables_of(const Flags& flags, const Hostfile& file, const Variables& inherited) {
  Variables variables = file.environment;
  for (const std::string& text : flags.variables) {
    const auto here = inherited.find(text);
    if (here != inherited.end()) {
      variables[text] = here->second;
    } else {
      const auto [name, value] = parse_variable("--env", text);
      variables[name] = value;
    }
  }
  return variables;
}

std::string path_of(const Variables& inherited) {
  const auto path = inherited.find("PATH");
  return path == inherited.end() ? "" : path->second;
}

std::string python_of(const Flags& flags, const Variables& inherited) {
  if (!flags.python.empty()) return flags.python;
  std::string found = find_python(path_of(inherited));
  if (found.empty()) throw InvalidArgument("there is no Python here; name one with --python");
  return found;
}

Request request_of(const Flags& flags, std::vector<std::string> program,
                   const Variables& inherited) {
  const Hostfile file = hosts_of(flags, inherited);
  Request request;
  request.program = std::move(program);
  request.hosts = file.hosts;
  request.ranks_per_host = flags.ranks_per_host;
  request.environment = variables_of(flags, file, inherited);
  const bool all_here = std::ranges::all_of(request.hosts, is_here);
  if (!all_here || !flags.directory.empty())
    request.directory = (std::filesystem::current_path() / flags.directory).string();
  request.backend = backend_of(flags, file);
  request.connections_per_address = flags.connections_per_address;
  request.nccl_port = flags.nccl_port;
  if (request.program.front().ends_with(".py")) request.python = python_of(flags, inherited);
  return request;
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(seconds));
}

RunOptions run_options(const Flags& flags, const Job& job, const Variables& inherited) {
  if (flags.input_rank && *flags.input_rank >= job.size()) {
    throw InvalidArgument(
        fmt::format("--stdin-to {}: the ranks are 0 to {}", *flags.input_rank, job.size() - 1));
  }
  RunOptions options;
  options.inherited = inherited;
  options.console.prefix = flags.prefix || (!flags.no_prefix && job.size() > 1);
  options.console.colour = !inherited.contains("NO_COLOR");
  options.console.log_folder = flags.log_folder;
  options.starting_port = flags.starting_port;
  options.input_rank = flags.input_rank;
  options.grace = milliseconds_of(flags.grace);
  if (flags.timeout) options.timeout = milliseconds_of(*flags.timeout);
  options.ssh_arguments = flags.ssh_arguments;
  options.verbose = flags.verbose;
  return options;
}

int run_launch(const Flags& flags, std::vector<std::string> program) {
  const Variables inherited = process_environment();
  if (flags.print_python) {
    fmt::print("{}\n", python_of(flags, inherited));
    return kGood;
  }
  if (!flags.check.empty()) {
    fmt::print("{}", table_of(read_hostfile(flags.check)));
    return kGood;
  }
  if (program.empty())
    throw InvalidArgument("there is no program to start; \"mccl launch --help\" has examples");
  const Request request = request_of(flags, std::move(program), inherited);
  const Job job = plan_job(request, rendezvous::make_job_key());
  if (!flags.mpi_arguments.empty() && request.backend != Backend::mpi)
    throw InvalidArgument("--mpi-arg is for --backend mpi; give that too");
  if (request.backend == Backend::mpi) {
    const int first = flags.starting_port.value_or(kUsualPort);
    const std::uint16_t port = job.all_here() && !flags.starting_port
                                   ? free_ports(1).front()
                                   : static_cast<std::uint16_t>(first - 1);
    become_mpirun(job, flags.mpi_arguments, port, inherited, flags.dry_run);
    return kGood;
  }
  const RunOptions options = run_options(flags, job, inherited);
  if (flags.dry_run || flags.print_environment) {
    fmt::print("{}", text_of(job, options, flags.dry_run));
    return kGood;
  }
  return run(job, options);
}

void add_where(CLI::App& app, Flags& flags) {
  CLI::Option* hosts = app.add_option("--hosts", flags.hosts,
                                      "Machines: [user@]name[:port], separated by commas; default\n"
                                      "127.0.0.1, this one")
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
  app.add_option("-n,--repeat-hosts,--ranks-per-host", flags.ranks_per_host,
                 "Ranks on each machine; default: the hostfile's slots, or 1")
      ->check(CLI::Range(1, kMostRanks))
      ->option_text("N");
  app.add_option("--user", flags.user, "To log in as, where a host names nobody")
      ->option_text("NAME");
  app.add_option("--ssh-arg", flags.ssh_arguments, "One more argument of ssh; again for more")
      ->option_text("ARG")
      ->allow_extra_args(false)
      ->take_all();
}

void add_what(CLI::App& app, Flags& flags) {
  app.add_option("--env", flags.variables,
                 "NAME=VALUE for all ranks, or NAME for its value here; again\nfor more")
      ->option_text("NAME=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  app.add_option("--cwd", flags.directory,
                 "Directory to run in; default: this one, on all machines")
      ->option_text("DIR");
  app.add_option("--python", flags.python,
                 "For programs that end in .py; default: the Python beside mccl,\n"
                 "or the first in PATH")
      ->option_text("PATH");
  app.add_option("--backend", flags.backend,
                 "any (default), ring, jaccl, jaccl-ring, nccl or mpi: what MLX's own\n"
                 "backends need beyond the variables that are always set; mpi starts\n"
                 "the ranks with mpirun, Open MPI's or MPICH's, and MCCL_BACKEND=mpi")
      ->option_text("NAME");
  app.add_option("--mpi-arg", flags.mpi_arguments,
                 "One more argument of mpirun, with --backend mpi; again for more")
      ->option_text("ARG")
      ->allow_extra_args(false)
      ->take_all();
  app.add_option("--connections-per-ip", flags.connections_per_address,
                 "Of MLX's ring, per address; default 1")
      ->check(CLI::Range(1, 64))
      ->option_text("N");
  app.add_option("-p,--starting-port", flags.starting_port,
                 fmt::format("First port of MLX's ring; MCCL_ROOT and MASTER_PORT take the two\n"
                             "before. Default: free ones on this machine, else {}",
                             kUsualPort))
      ->check(CLI::Range(3, 65535))
      ->option_text("PORT");
  app.add_option("--nccl-port", flags.nccl_port, "NCCL_PORT of MLX's nccl; default 12345")
      ->check(CLI::Range(1, 65535))
      ->option_text("PORT");
}

void add_how(CLI::App& app, Flags& flags) {
  CLI::Option* prefix = app.add_flag("--prefix", flags.prefix,
                                     "Begin lines with [rank]; the default, but for a single rank")
                            ->option_text(" ");
  app.add_flag("--no-prefix", flags.no_prefix, "Do not")->excludes(prefix)->option_text(" ");
  prefix->option_text(" ");
  app.add_option("--log-dir", flags.log_folder, "Also write what rank N writes to DIR/rank-N.log")
      ->option_text("DIR");
  app.add_option("--stdin-to", flags.input_rank, "Give standard input to this rank only")
      ->check(CLI::Range(0, kMostRanks - 1))
      ->option_text("RANK");
  app.add_option("--timeout", flags.timeout, "End the job after so many seconds")
      ->check(CLI::Range(0.001, kLongest))
      ->option_text("S");
  app.add_option("--grace", flags.grace, "Seconds from SIGTERM to SIGKILL; default 5")
      ->check(CLI::Range(0.0, 3600.0))
      ->option_text("S");
  app.add_flag("--dry-run", flags.dry_run, "Show what would run where, and start nothing");
  app.add_flag("--print-env", flags.print_environment,
               "Show the variables that each rank gets, and start nothing");
  app.add_flag("--print-python", flags.print_python, "Show which Python .py files run under");
  app.add_option("--check", flags.check, "Say whether a hostfile is right, and what it means")
      ->option_text("FILE");
  app.add_flag("--verbose", flags.verbose, "Tell what is done on which machine");
}

}  // namespace

Command add_launch(CLI::App& program) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* app = program.add_subcommand("launch", kSummary);
  app->footer(kFooter);
  const auto words = std::make_shared<std::vector<std::string>>();
  app->add_option("program", *words, "What to start, and its own arguments")->option_text("...");
  add_where(*app, *flags);
  add_what(*app, *flags);
  add_how(*app, *flags);
  return {app, [flags, words] { return run_launch(*flags, *words); }, words};
}

}  // namespace mccl::cli
