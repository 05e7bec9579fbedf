#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/settings.h"
#include "base/value_text.h"
#include "cli/command.h"
#include "cli/kit/program.h"
#include "cli/launch/failure.h"
#include "cli/launch/hostfile.h"
#include "cli/launch/job.h"
#include "cli/launch/mpi.h"
#include "cli/launch/resources.h"
#include "cli/launch/run.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

constexpr const char* kSummary = "Start a job on this machine, on others, or under Slurm";

constexpr const char* kFooter =
    R"(Arguments after the program's name belong to the program; -- before the name ends the flags.
A program whose name ends in .py runs under Python. The environment gives every rank its number and
the addresses of the other ranks: for MCCL, torch and a backend of MLX (--print-env shows it).

The first rank that fails ends the job: the other ranks get SIGTERM, and SIGKILL after --grace.
SIGINT, SIGTERM or SIGHUP to the launcher also ends the job. Other machines must accept ssh logins
without a password, and must have a shell and the program; the launcher does not copy MCCL to them.

On a terminal, your input goes to all ranks, and Ctrl-C ends the job. With --stdin-to, or with only
one rank, that rank gets every key, including Ctrl-C and Ctrl-D, as if it ran alone. This lets
breakpoint() work.

Examples:
  mccl launch -n 4 train.py --epochs 3            four ranks on this machine
  mccl launch --hosts a,b,me@c:2222 train.py      one rank on each of three machines
  mccl launch -n 2 --mlx generate.py              an unchanged MLX program, on MCCL
  mccl launch --hostfile desk.json -- ./program   the hosts of a file (docs/machines/launch.md)
  mccl launch -n 2 --stdin-to 1 debug.py          with a debugger in rank 1
  mccl launch --slurm train.py                    on the machines of this Slurm allocation
  mccl launch --hosts a,b --dry-run train.py      show what would run on each host
  mccl launch --check desk.json                   check the hostfile

Exit status: 0 success. If a rank failed: the status of the rank that failed first, 128 + the signal
number if a signal killed it, 255 if its machine was lost. 128 + the signal number if a signal ended
the launcher; 124 after --timeout; 141 if the reader of the output closed it; 1 if the job could not
be started or its output could not be written (a full disk); 2 bad arguments.)";

/// Flags of other launchers for the number of ranks, each with the flag of mccl launch.
constexpr OtherName kOtherNames[] = {
    {"-np", "-n"},      {"--np", "-n"},    {"--nproc", "-n"},          {"--nprocs", "-n"},
    {"--ntasks", "-n"}, {"--ranks", "-n"}, {"--nproc_per_node", "-n"}, {"--nproc-per-node", "-n"}};

/// A value is empty or absent if its flag was not given.
struct LaunchFlags {
  JobRequest request;
  RunOptions run;
  WhichHosts which;
  std::string check;
  bool slurm = false;
  std::string backend;
  std::vector<std::string> variables;
  std::vector<std::string> mpi_arguments;
  std::optional<int> silence;
  std::string bind_to;
  std::string restart = "all";
  std::optional<Prefix> prefix;
  std::optional<double> timeout;
  double grace = 5;
  bool dry_run = false;
  bool print_environment = false;
  bool print_python = false;
};

/// The backend of --backend or else the hostfile. Refuses RDMA devices that do not suffice for it.
Backend backend_of(const LaunchFlags& flags, const Hostfile& file) {
  const std::string& path = flags.check.empty() ? flags.which.hostfile : flags.check;
  const bool by_flag = !flags.backend.empty();
  const std::string& name = by_flag ? flags.backend : file.backend;
  const std::string where = by_flag ? "--backend" : path + ".backend";
  const auto backend = name.empty() ? Backend::any : kind_of<Backend>(where, name, kBackendCount);
  check_rdma(path.empty() ? where : path, file.hosts, backend);
  return backend;
}

/// The hostfile's variables, overridden by those of --env: NAME=VALUE, or NAME to copy a variable.
Variables variables_of(const LaunchFlags& flags, const Hostfile& file, const Variables& inherited) {
  Variables variables = file.environment;
  for (const std::string& text : flags.variables) {
    const auto here = inherited.find(text);
    if (here != inherited.end()) {
      variables[text] = here->second;
      continue;
    }
    const bool names_one = text.find('=') == text.npos;
    const auto [name, value] = parse_variable("--env", names_one ? text + "=" : text);
    if (names_one) {
      throw InvalidArgument(fmt::format(
          "--env: {} is not set on this machine; set it, or give {}=VALUE", name, name));
    }
    if (name == "MCCL_JOB_KEY") {
      throw InvalidArgument(
          "--env: the value of MCCL_JOB_KEY must not be an argument, because every user of this "
          "machine can read the arguments of programs; set the variable, which mccl launch passes "
          "on");
    }
    variables[name] = value;
  }
  return variables;
}

void refuse_variables_of_ranks(const LaunchFlags& flags, const Hostfile& file, Backend backend) {
  const std::string path = printable(flags.check.empty() ? flags.which.hostfile : flags.check);
  const auto check = [&](const std::string& where, const std::string& name) {
    if (is_set_per_rank(name, backend))
      throw InvalidArgument(
          fmt::format("{}: mccl launch sets {} for the ranks itself; leave it out", where, name));
  };
  for (const std::string& text : flags.variables) check("--env", text.substr(0, text.find('=')));
  for (const auto& [name, value] : file.environment) check(path + ".envs", name);
  for (const Host& host : file.hosts)
    for (const auto& [name, value] : host.environment)
      check(fmt::format("{}: \"env\" of {}", path, printable(text_of(host))), name);
}

std::string python_of(const LaunchFlags& flags, const Variables& inherited) {
  if (!flags.request.python.empty()) return flags.request.python;
  std::string found = find_python(path_of(inherited));
  if (found.empty())
    throw InvalidArgument("no Python was found on this machine; name one with --python");
  return found;
}

/// With --mlx: a bare name such as mlx_lm.generate stands for the script beside the Python
/// interpreter, even if PATH has another one.
std::string console_script(const std::string& program, const std::string& python) {
  if (program.find('/') != program.npos) return program;
  std::string beside = find_program(program, std::filesystem::path(python).parent_path().string());
  return beside.empty() ? program : beside;
}

JobRequest request_of(const LaunchFlags& flags, std::vector<std::string> program,
                      const Variables& inherited) {
  const Hostfile file = hosts_of(
      flags.which, flags.slurm ? hosts_of_allocation(inherited) : std::vector<Host>{Host{}});
  JobRequest request = flags.request;
  request.program = std::move(program);
  request.hosts = file.hosts;
  request.environment = variables_of(flags, file, inherited);
  const bool all_here = std::ranges::all_of(request.hosts, is_here);
  if (!all_here || !request.directory.empty())
    request.directory = (std::filesystem::current_path() / request.directory).string();
  request.backend = backend_of(flags, file);
  refuse_variables_of_ranks(flags, file, request.backend);
  const bool under_python = runs_under_python(request);
  request.python = under_python || flags.run.on_mccl ? python_of(flags, inherited) : "";
  if (flags.run.on_mccl) {
    if (request.verbose && !inherited.contains("MCCL_LOG_LEVEL"))
      request.environment.emplace("MCCL_LOG_LEVEL", "INFO");
    request.environment.emplace(std::string(kMlxVariable), "1");
    if (!under_python)
      request.program.front() = console_script(request.program.front(), request.python);
  }
  if (request.backend == Backend::any && runs_mlx_on_cuda(request.python))
    request.backend = Backend::nccl;
  return request;
}

/// An RDMA device leads to a host, and cannot select one of the ranks on it.
void require_one_rank_per_device(const Job& job) {
  const Backend backend = job.request.backend;
  if (backend != Backend::jaccl && backend != Backend::jaccl_ring) return;
  for (const RankPlan& rank : job.ranks) {
    if (rank.rank == 0 || job.ranks[static_cast<std::size_t>(rank.rank - 1)].entry != rank.entry)
      continue;
    throw InvalidArgument(fmt::format(
        "{}: {} has several ranks, but RDMA devices connect hosts; give each host one rank",
        name_of(backend), text_of(job.entry_of(rank))));
  }
}

RunOptions run_options(const LaunchFlags& flags, const Job& job, const Variables& inherited) {
  RunOptions options = flags.run;
  if (options.input_rank && *options.input_rank >= job.size()) {
    throw InvalidArgument(fmt::format("--stdin-to {}: there is no such rank; the ranks are 0 to {}",
                                      *options.input_rank, job.size() - 1));
  }
  options.inherited = inherited;
  options.ssh_arguments = flags.which.ssh_arguments;
  options.patience = flags.which.patience;
  const Prefix usual_prefix = job.size() == 1 ? Prefix::none : Prefix::where_several_write;
  options.console.prefix = flags.prefix.value_or(usual_prefix);
  options.console.colour = !inherited.contains("NO_COLOR");
  options.grace = milliseconds_of(flags.grace);
  if (flags.timeout) options.timeout = milliseconds_of(*flags.timeout);
  options.silence = silence_of(job, inherited, flags.silence);
  options.restarts_failed_only = flags.restart == "failed";
  options.bind_to_is_asked = !flags.bind_to.empty();
  if (options.bind_to_is_asked)
    options.bind_to = kind_of<BindTo>("--bind-to", flags.bind_to, kBindToCount);
  return options;
}

int run_mpi(const LaunchFlags& flags, const Job& job, const Variables& inherited) {
  const std::optional<int>& starting_port = flags.run.starting_port;
  const std::uint16_t master =
      job.all_here() && !starting_port
          ? free_ports(1).front()
          : static_cast<std::uint16_t>(starting_port.value_or(kUsualPort) - 1);
  const MpiOptions options{flags.mpi_arguments, inherited, starting_port, master};
  const Mpirun mpirun = find_mpirun(inherited);
  if (!flags.dry_run && !flags.print_environment) become_mpirun(job, options, mpirun);
  const Variables variables = mpi_variables(job, options, mpirun);
  fmt::print("{}", flags.dry_run
                       ? command_line(mpirun_words(job, options, mpirun.kind, variables)) + "\n"
                       : text_of(variables));
  return kGood;
}

int run_launch(const LaunchFlags& flags, std::vector<std::string> program) {
  const Variables inherited = process_environment();
  if (flags.print_python) {
    fmt::print("{}\n", python_of(flags, inherited));
    return kGood;
  }
  if (!flags.check.empty()) {
    const Hostfile file = read_hostfile(flags.check);
    refuse_variables_of_ranks(flags, file, backend_of(flags, file));
    fmt::print("{}", table_of(file));
    return kGood;
  }
  if (program.empty())
    throw InvalidArgument("no program to start was given; \"mccl launch --help\" has examples");
  const JobRequest request = request_of(flags, std::move(program), inherited);
  const Job job = plan_job(request, key_of(inherited));
  require_one_rank_per_device(job);
  if (!flags.mpi_arguments.empty() && request.backend != Backend::mpi)
    throw InvalidArgument("--mpi-arg needs --backend mpi; add that flag");
  if (request.backend == Backend::mpi && flags.run.max_restarts > 0) {
    throw InvalidArgument(
        "--max-restarts does not work with --backend mpi, because mpirun starts the ranks; omit "
        "one of the flags");
  }
  if (flags.restart == "failed" && flags.run.max_restarts == 0) {
    throw InvalidArgument(
        "--restart failed has no effect without --max-restarts N; add that flag, with the number "
        "of times that each rank may start again");
  }
  if (request.backend == Backend::mpi) return run_mpi(flags, job, inherited);
  const RunOptions options = run_options(flags, job, inherited);
  if (flags.dry_run || flags.print_environment) {
    fmt::print("{}", text_of(job, choose_ports(job, options.starting_port, {}),
                             expected_places(job), inherited, flags.dry_run));
    return kGood;
  }
  return run(job, options).status;
}

constexpr double kLongest = 31'536'000;

void add_where(CLI::App& app, LaunchFlags& flags) {
  flags.which.patience = flags.run.patience;
  add_host_flags(app, flags.which, "a machine may take to become ready");
  app.add_flag("--slurm", flags.slurm, "Run on the machines of this Slurm allocation")
      ->excludes("--hosts")
      ->excludes("--hostfile")
      ->option_text(" ");
  add_value(app, "-n,--repeat-hosts,--ranks-per-host N", flags.request.ranks_per_host,
            "Ranks on each machine; default: the hostfile's slots, or 1",
            integer_between(1, kMostRanks));
  add_value(app, "--silence S", flags.silence,
            "Seconds without a message from a machine, or from this machine to\nit, until it "
            "counts as lost; default: twice MCCL_LIVENESS_INTERVAL",
            integer_between(1, static_cast<std::int64_t>(kLongest)));
}

void add_what(CLI::App& app, LaunchFlags& flags) {
  add_value(app, "--env NAME=VALUE", flags.variables,
            "NAME=VALUE for all ranks, or NAME for its value on this machine;\nmay be repeated");
  add_value(app, "--cwd DIR", flags.request.directory,
            "Directory to run in; default: the current directory, on all\nmachines");
  add_value(app, "--python PATH", flags.request.python,
            "Python for programs that end in .py, for python, and for -m\nMODULE; default: "
            "the one beside mccl, or the first in PATH");
  app.add_flag("--mlx", flags.run.on_mccl,
               "Run unchanged MLX programs on MCCL, whatever command starts them\n(MCCL_MLX=1)")
      ->option_text(" ");
  add_value(app, "--backend NAME", flags.backend,
            "Backend of MLX that the programs use: ring, jaccl, jaccl-ring, nccl,\nor mpi "
            "(mpirun of Open MPI or MPICH then starts the ranks, with\n"
            "MCCL_BACKEND=mpi). Default: any, which is nccl if MLX is built for\nCUDA, and "
            "otherwise ring");
  add_value(app, "--mpi-arg ARG", flags.mpi_arguments,
            "Arguments for mpirun, with --backend mpi, quoted as in a shell; may\nbe repeated");
  add_value(app, "--connections-per-ip N", flags.request.connections_per_address,
            "Connections per address in MLX's ring; default 1", integer_between(1, 64));
  add_value(app, "-p,--starting-port PORT", flags.run.starting_port,
            fmt::format("First port of MLX's ring; MCCL_ROOT and MASTER_PORT use the two\n"
                        "ports below it. Default: free ports if all ranks run on this\n"
                        "machine, else {} or the next free ports",
                        kUsualPort),
            integer_between(3, 65535));
  add_value(app, "--nccl-port PORT", flags.request.nccl_port,
            "NCCL_PORT of MLX's nccl; default 12345", integer_between(1, 65535));
}

void add_how(CLI::App& app, LaunchFlags& flags) {
  add_value(app, "--bind-to HOW", flags.bind_to,
            "share (default): each rank runs on an equal part of the machine's\ncores; core: "
            "on one core; none: on any core. Ranks are not bound if\nthere are more ranks "
            "than cores, or OMP_PROC_BIND or taskset is used");
  CLI::Option* prefix = app.add_flag_callback(
      "--prefix", [&flags] { flags.prefix = Prefix::all; },
      "Begin lines with [rank]; default, except in a job of one rank, or on\na terminal to which "
      "only one rank writes");
  app.add_flag_callback(
         "--no-prefix", [&flags] { flags.prefix = Prefix::none; }, "Do not begin lines with [rank]")
      ->excludes(prefix)
      ->option_text(" ");
  prefix->option_text(" ");
  app.add_flag("--timestamps", flags.run.console.timestamps,
               "Begin lines with the time of their arrival: hours, minutes,\nseconds and "
               "milliseconds of this machine's clock")
      ->option_text(" ");
  add_value(
      app, "--log-dir DIR", flags.run.console.log_folder,
      "Also write the output of rank N to rank-N.log, in a new folder inside\nDIR; DIR/latest "
      "is a link to the newest such folder");
  add_value(app, "--stdin-to RANK", flags.run.input_rank, "Give standard input to this rank only",
            integer_between(0, kMostRanks - 1));
  add_value(app, "--timeout S", flags.timeout, "End the job after this many seconds",
            number_between(0.001, kLongest));
  add_value(app, "--max-restarts N", flags.run.max_restarts,
            "Start all ranks again after a failure, at most this many times;\ndefault 0. "
            "Ranks get the number of restarts so far in\nTORCHELASTIC_RESTART_COUNT",
            integer_between(0, 1'000'000));
  add_value(app, "--restart WHICH", flags.restart,
            "The ranks that start again: all (default), or failed: only the rank\nthat failed, at "
            "most --max-restarts times each. The other ranks\nmust then call reconfigure() (see "
            "docs/operating.md)",
            CLI::IsMember({"all", "failed"}));
  add_value(app, "--grace S", flags.grace, "Seconds from SIGTERM to SIGKILL; default 5",
            number_between(0.0, 3600.0));
  app.add_flag("--dry-run", flags.dry_run, "Show what would run on each host, and start nothing");
  app.add_flag("--print-env", flags.print_environment,
               "Show the variables that each rank gets, and start nothing");
  app.add_flag("--print-python", flags.print_python, "Show the Python that runs .py files");
  add_value(app, "--check FILE", flags.check, "Check a hostfile, and show its hosts");
  app.add_flag("--verbose", flags.request.verbose,
               "Report the steps on each machine, also those of MLX's backend");
}

void add_flags(CLI::App& app, LaunchFlags& flags) {
  add_where(app, flags);
  add_what(app, flags);
  add_how(app, flags);
  for (const char* name : {"--check", "--backend", "--cwd", "--python", "--log-dir", "--bind-to"})
    app.get_option(name)->check(not_empty);
}

}  // namespace

Command add(CLI::App& program) {
  const auto flags = std::make_shared<LaunchFlags>();
  CLI::App* app = program.add_subcommand("launch", kSummary);
  app->footer(kFooter);
  const auto words = std::make_shared<std::vector<std::string>>();
  app->add_option("program", *words, "Program to start, and its arguments")->option_text("...");
  add_flags(*app, *flags);
  return {.app = app,
          .run = [flags, words] { return run_launch(*flags, *words); },
          .program = words,
          .other_names = kOtherNames};
}

}  // namespace mccl::cli::launch
