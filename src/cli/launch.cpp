#include <fmt/format.h>

#include <algorithm>
#include <chrono>
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
#include "cli/flag_values.h"
#include "cli/kit/find_program.h"
#include "cli/kit/shell_words.h"
#include "cli/launch/failure.h"
#include "cli/launch/hostfile.h"
#include "cli/launch/job.h"
#include "cli/launch/mpi.h"
#include "cli/launch/options.h"
#include "cli/launch/ports.h"
#include "cli/launch/run.h"
#include "mccl/error.h"

namespace mccl::cli {
namespace {

using namespace launch;

constexpr const char* kSummary = "Start a job on this machine, on others, or under Slurm";

constexpr const char* kFooter =
    R"(Arguments after the program's name belong to the program; -- ends the flags if that is unclear.
A program whose name ends in .py runs under Python. The environment gives every rank its number and
the addresses of the others: for MCCL, for torch and for a backend of MLX (--print-env shows it).

The first rank that fails ends the job: the others get SIGTERM, and SIGKILL after --grace. SIGINT,
SIGTERM or SIGHUP to the launcher also ends the job. Other machines need ssh without a password, a
shell and the program; the launcher does not copy MCCL to them.

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

/// Names that other launchers use for the number of ranks.
constexpr OtherName kOtherNames[] = {
    {"-np", "-n"},      {"--np", "-n"},    {"--nproc", "-n"},          {"--nprocs", "-n"},
    {"--ntasks", "-n"}, {"--ranks", "-n"}, {"--nproc_per_node", "-n"}, {"--nproc-per-node", "-n"}};

/// Returns the hosts of the job, and the settings that the hostfile has for all of them.
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

/// Returns the backend that the flag or else the file specifies. Returns `any` if neither specifies
/// one.
Backend backend_of(const Flags& flags, const Hostfile& file) {
  const std::string& path = flags.check.empty() ? flags.hostfile : flags.check;
  const bool by_flag = !flags.backend.empty();
  const std::string& name = by_flag ? flags.backend : file.backend;
  const std::string where = by_flag ? "--backend" : path + ".backend";
  const auto backend = name.empty() ? Backend::any : kind_of<Backend>(where, name, kBackendCount);
  check_rdma(path.empty() ? where : path, file.hosts, backend);
  return backend;
}

/// Returns the hostfile's variables, overridden by those of --env. These have the form NAME=VALUE,
/// or NAME to take the value in the launcher's environment.
Variables variables_of(const Flags& flags, const Hostfile& file, const Variables& inherited) {
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
      throw InvalidArgument(
          fmt::format("--env: {} is not set here; set it, or give {}=VALUE", name, name));
    }
    variables[name] = value;
  }
  return variables;
}

void refuse_variable_of_ranks(const std::string& where, const std::string& name, Backend backend) {
  if (!is_told_each_rank(name, backend)) return;
  throw InvalidArgument(
      fmt::format("{}: mccl launch sets {} for the ranks itself; leave it out", where, name));
}

void refuse_variables_of_ranks(const Flags& flags, const Hostfile& file, Backend backend) {
  for (const std::string& text : flags.variables)
    refuse_variable_of_ranks("--env", text.substr(0, text.find('=')), backend);
  const std::string path = printable(flags.check.empty() ? flags.hostfile : flags.check);
  for (const auto& variable : file.environment)
    refuse_variable_of_ranks(path + ".envs", variable.first, backend);
  for (const Host& host : file.hosts)
    for (const auto& variable : host.environment)
      refuse_variable_of_ranks(fmt::format("{}: \"env\" of {}", path, printable(text_of(host))),
                               variable.first, backend);
}

std::string python_of(const Flags& flags, const Variables& inherited) {
  if (!flags.request.python.empty()) return flags.request.python;
  std::string found = find_python(path_of(inherited));
  if (found.empty())
    throw InvalidArgument("no Python was found on this machine; name one with --python");
  return found;
}

/// Used with --mlx. A bare name such as mlx_lm.generate means the console script in the folder of
/// the Python interpreter, if there is one, regardless of PATH.
std::string console_script(const std::string& program, const std::string& python) {
  if (program.find('/') != program.npos) return program;
  std::string beside = find_program(program, std::filesystem::path(python).parent_path().string());
  return beside.empty() ? program : beside;
}

Request request_of(const Flags& flags, std::vector<std::string> program,
                   const Variables& inherited) {
  const Hostfile file = hosts_of(flags, inherited);
  Request request = flags.request;
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

/// Throws InvalidArgument if a host has several ranks, because devices of MLX's jaccl lead to
/// hosts, not to ranks.
void require_one_rank_per_device(const Job& job) {
  const Backend backend = job.request.backend;
  if (backend != Backend::jaccl && backend != Backend::jaccl_ring) return;
  for (const Rank& rank : job.ranks) {
    if (rank.rank == 0 || job.ranks[static_cast<std::size_t>(rank.rank - 1)].entry != rank.entry)
      continue;
    throw InvalidArgument(
        fmt::format("{}: {} has several ranks, but RDMA devices connect hosts; give it one rank",
                    name_of(backend), text_of(job.entry_of(rank))));
  }
}

Prefix prefix_of(const Flags& flags, const Job& job) {
  if (flags.prefix) return Prefix::all;
  return flags.no_prefix || job.size() == 1 ? Prefix::none : Prefix::where_several_write;
}

RunOptions run_options(const Flags& flags, const Job& job, const Variables& inherited) {
  RunOptions options = flags.run;
  if (options.input_rank && *options.input_rank >= job.size()) {
    throw InvalidArgument(
        fmt::format("--stdin-to {}: the ranks are 0 to {}", *options.input_rank, job.size() - 1));
  }
  options.inherited = inherited;
  options.console.prefix = prefix_of(flags, job);
  options.console.colour = !inherited.contains("NO_COLOR");
  options.grace = milliseconds_of(flags.grace);
  if (flags.timeout) options.timeout = milliseconds_of(*flags.timeout);
  options.silence = silence_of(job, inherited, flags.silence);
  options.bind_to_is_asked = !flags.bind_to.empty();
  if (options.bind_to_is_asked)
    options.bind_to = kind_of<BindTo>("--bind-to", flags.bind_to, kBindToCount);
  return options;
}

int run_mpi(const Flags& flags, const Job& job, const Variables& inherited) {
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

int run_launch(const Flags& flags, std::vector<std::string> program) {
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
  const Request request = request_of(flags, std::move(program), inherited);
  const Job job = plan_job(request, key_of(inherited));
  require_one_rank_per_device(job);
  if (!flags.mpi_arguments.empty() && request.backend != Backend::mpi)
    throw InvalidArgument("--mpi-arg needs --backend mpi; give that too");
  if (request.backend == Backend::mpi && flags.run.max_restarts > 0) {
    throw InvalidArgument(
        "--max-restarts does not work with --backend mpi, because mpirun starts the ranks; omit "
        "one "
        "of them");
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

}  // namespace

Command add_launch(CLI::App& program) {
  const auto flags = std::make_shared<Flags>();
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

}  // namespace mccl::cli
