#include "cli/launch/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/secret.h"
#include "base/settings.h"
#include "base/value_text.h"
#include "cli/kit/program.h"
#include "cluster/text.h"
#include "mccl/error.h"
#include "rendezvous/connections/proof.h"

namespace mccl::cli::launch {
namespace {

using nlohmann::json;

/// Prefixes of variables that all ranks must agree on.
constexpr std::string_view kForwarded[] = {"MCCL_", "MLX_", "NCCL_"};

constexpr std::string_view kPlaces[] =
    {  // The rank and the addresses of ranks, for MLX's backends.
        "MLX_RANK",
        "MLX_WORLD_SIZE",
        "MLX_HOSTFILE",
        "MLX_IBV_DEVICES",
        "MLX_JACCL_COORDINATOR",
        "MLX_JACCL_RING",
        "NCCL_HOST_IP",
        "NCCL_PORT",
        "JACCL_RANK",
        "JACCL_IBV_DEVICES",
        "JACCL_COORDINATOR",
        "JACCL_RING"};

constexpr std::string_view kOfEachRank[] = {  // Variables that the launcher sets for each rank.
    "MCCL_RANK",
    "MCCL_WORLD_SIZE",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MLX_RANK",
    "MLX_WORLD_SIZE",
    "TORCHELASTIC_RESTART_COUNT",
    kMark};

constexpr std::string_view kMeetingPoints[] = {"MCCL_ROOT", "MASTER_ADDR", "MASTER_PORT"};

constexpr const char* kDeviceTable = "MCCL_RDMA_DEVICE";
constexpr const char* kTableIsRing = "MCCL_RDMA_RING";

bool is_script(const std::string& program) { return program.ends_with(".py"); }

bool is_python(const std::string& program) { return program == "python" || program == "python3"; }

const std::string& first_of(const std::string& own, const std::string& common) {
  return own.empty() ? common : own;
}

std::vector<std::string> argv_of(const JobRequest& request, const Host& host) {
  if (!runs_under_python(request)) return request.program;
  std::vector<std::string> argv = {first_of(host.python, request.python)};
  const auto first = request.program.begin();
  argv.insert(argv.end(), is_python(*first) ? first + 1 : first, request.program.end());
  return argv;
}

/// Falls back to the address at which the launcher reached the host.
std::vector<std::string> addresses_of(const Job& job, const RankPlan& rank,
                                      const std::vector<ReachedHost>& reached) {
  const std::vector<std::string>& given = job.entry_of(rank).addresses;
  return given.empty() ? std::vector{reached[rank.host].address} : given;
}

/// Ranks on this machine (`here`) use the devices of the launcher's CUDA_VISIBLE_DEVICES in turn.
/// Otherwise the device has the number of the local rank.
std::string device_of(const RankPlan& rank, bool here, const Variables& inherited) {
  const auto found = inherited.find("CUDA_VISIBLE_DEVICES");
  std::vector<std::string_view> devices;
  if (here && found != inherited.end()) devices = cluster::split(found->second, ',');
  std::erase(devices, "");
  const auto number = static_cast<std::size_t>(rank.local_rank);
  return devices.empty() ? std::to_string(number) : std::string(devices[number % devices.size()]);
}

/// Sets the variables of MLX's jaccl. Also sets MCCL's own variables for the device table, so that
/// programs without MLX use the same devices.
void add_jaccl(Variables& variables, const Job& job, const Ports& ports, const std::string& meeting,
               const std::string& folder) {
  const std::string table = folder + "/" + kDevicesFile;
  variables["MLX_JACCL_COORDINATOR"] = at_port(meeting, ports.ring.front());
  variables["MLX_IBV_DEVICES"] = table;
  variables[kDeviceTable] = table;
  if (job.request.backend != Backend::jaccl_ring) return;
  variables["MLX_JACCL_RING"] = "1";
  variables[kTableIsRing] = "1";
}

/// If several backends were set up, MLX would choose one of them. In a job of one rank, ring and
/// jaccl get no variables, because they cannot create such a group.
void add_mlx(Variables& variables, const Job& job, const RankPlan& rank, const Ports& ports,
             const std::string& meeting, const std::string& folder, const Variables& inherited) {
  const Backend backend = job.request.backend;
  if (backend == Backend::nccl) {
    variables["MLX_WORLD_SIZE"] = std::to_string(job.size());
    variables["NCCL_HOST_IP"] = meeting;
    variables["NCCL_PORT"] = std::to_string(job.request.nccl_port);
    if (job.request.verbose) variables["NCCL_DEBUG"] = "INFO";
    variables["CUDA_VISIBLE_DEVICES"] = device_of(rank, is_here(job.hosts[rank.host]), inherited);
  } else if (job.size() == 1 || backend == Backend::mpi) {
    return;
  } else if (backend == Backend::jaccl || backend == Backend::jaccl_ring) {
    add_jaccl(variables, job, ports, meeting, folder);
  } else {
    variables["MLX_HOSTFILE"] = folder + "/" + kRingFile;
    if (job.request.verbose) variables["MLX_RING_VERBOSE"] = "1";
  }
  variables["MLX_RANK"] = std::to_string(rank.rank);
}

void add_torch(Variables& variables, const Job& job, const RankPlan& rank, const Ports& ports,
               const std::string& meeting, const ReachedHost& host) {
  variables["RANK"] = std::to_string(rank.rank);
  variables["WORLD_SIZE"] = std::to_string(job.size());
  variables["LOCAL_RANK"] = std::to_string(rank.local_rank);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(job.ranks_on(rank.host).size());
  variables["GROUP_RANK"] = std::to_string(rank.host);
  variables[kRestartCount] = std::to_string(job.restarts);
  variables["MASTER_ADDR"] = host.store.empty() ? meeting : host.store;
  variables["MASTER_PORT"] = std::to_string(host.store.empty() ? ports.master : host.store_port);
}

void add_mccl(Variables& variables, const Job& job, const RankPlan& rank, const Ports& ports,
              const std::string& meeting, const std::string& folder) {
  variables["MCCL_RANK"] = std::to_string(rank.rank);
  variables["MCCL_WORLD_SIZE"] = std::to_string(job.size());
  variables["MCCL_ROOT"] = at_port(meeting, ports.root);
  variables["MCCL_JOB_KEY"] = job.key;
  // Lists all addresses of the rank `connections_per_address` times.
  std::vector<std::string> listed;
  for (int i = 0; i < job.request.connections_per_address; ++i) {
    for (const std::string& address : job.entry_of(rank).addresses) listed.push_back(address);
  }
  if (!listed.empty()) variables["MCCL_LISTEN_ADDR"] = fmt::format("{}", fmt::join(listed, ","));
  if (may_be_sparse(job)) variables["MCCL_HOSTFILE"] = folder + "/" + kRingFile;
}

/// Returns "NAME=VALUE" for display: quoted for a shell, and without the job key.
std::string variable_text(const std::string& name, const std::string& value) {
  if (name == "MCCL_JOB_KEY") return "MCCL_JOB_KEY=(a secret of this job)";
  return fmt::format("{}={}", name, shell_word(value));
}

}  // namespace

bool may_be_sparse(const Job& job) {
  const auto has_addresses = [&](const RankPlan& rank) {
    return !job.entry_of(rank).addresses.empty();
  };
  return job.hosts.size() > 1 && std::ranges::any_of(job.ranks, has_addresses);
}

std::vector<const RankPlan*> Job::ranks_on(std::size_t host) const {
  std::vector<const RankPlan*> found;
  for (const RankPlan& rank : ranks)
    if (rank.host == host) found.push_back(&rank);
  return found;
}

bool Job::all_here() const { return std::ranges::all_of(hosts, is_here); }

bool runs_under_python(const JobRequest& request) {
  const std::string& program = request.program.front();
  return is_script(program) || is_python(program) || program.starts_with('-');
}

Job plan_job(const JobRequest& request, std::string key) {
  Job job{.request = request, .hosts = {}, .ranks = {}, .key = std::move(key)};
  std::map<std::string, std::size_t> known;
  for (std::size_t entry = 0; entry < request.hosts.size(); ++entry) {
    const Host& host = request.hosts[entry];
    // This machine has several names. All of them have the same key in `known`, an empty text.
    const auto [place, is_new] =
        known.emplace(is_here(host) ? "" : text_of(host), job.hosts.size());
    if (is_new) job.hosts.push_back(host);
    const int ranks = request.ranks_per_host.value_or(host.slots.value_or(1));
    for (int i = 0; i < ranks; ++i) {
      if (job.size() == kMostRanks)
        throw InvalidArgument(
            fmt::format("the job has more than {} ranks; give fewer hosts or slots", kMostRanks));
      job.ranks.push_back({.rank = job.size(),
                           .host = place->second,
                           .entry = entry,
                           .local_rank = static_cast<int>(job.ranks_on(place->second).size()),
                           .argv = argv_of(request, host),
                           .directory = first_of(host.directory, request.directory)});
    }
  }
  return job;
}

std::string key_of(const Variables& inherited) {
  forbid_core_dumps();
  const Setting& setting = find_setting("job_key");
  const auto found = inherited.find(std::string(setting.info.variable));
  if (found == inherited.end() || inherited.contains(kMark))
    return std::string(rendezvous::make_job_key().view());
  refuse_empty_secret(setting, found->second, found->first);
  return found->second;
}

const std::string* script_of(const RankPlan& rank) {
  return rank.argv.size() > 1 && is_script(rank.argv[1]) ? &rank.argv[1] : nullptr;
}

std::string ring_file(const Job& job, const Ports& ports, const std::vector<ReachedHost>& reached) {
  json file = json::array();
  auto port = ports.ring.begin();
  for (const RankPlan& rank : job.ranks) {
    json places = json::array();
    for (const std::string& address : addresses_of(job, rank, reached)) {
      for (int i = 0; i < job.request.connections_per_address; ++i)
        places.push_back(at_port(address, *port++));
    }
    file.push_back(std::move(places));
  }
  return file.dump();
}

std::string devices_file(const Job& job) {
  if (!is_whole_table(job.request.hosts)) return {};
  json file = json::array();
  for (const RankPlan& rank : job.ranks) {
    json row = json::array();
    for (const RankPlan& peer : job.ranks) row.push_back(job.entry_of(rank).rdma[peer.entry]);
    file.push_back(std::move(row));
  }
  return file.dump();
}

bool sets_mlx_rank(std::string_view name) {
  return std::ranges::find(kPlaces, name) != std::end(kPlaces);
}

bool is_set_per_rank(std::string_view name, Backend backend) {
  if (std::ranges::find(kOfEachRank, name) != std::end(kOfEachRank)) return true;
  return backend != Backend::mpi &&
         std::ranges::find(kMeetingPoints, name) != std::end(kMeetingPoints);
}

Variables forwarded(const Variables& inherited) {
  Variables variables;
  const auto outer = inherited.find(kMark);
  for (const auto& variable : inherited) {
    const std::string& name = variable.first;
    const auto begins = [&name](std::string_view prefix) { return name.starts_with(prefix); };
    const bool is_outers = outer != inherited.end() && variable.second.starts_with(outer->second);
    if (std::ranges::any_of(kForwarded, begins) && !sets_mlx_rank(name) && !is_outers)
      variables.insert(variable);
  }
  // kTableIsRing describes the device table, and has no meaning if the table is not passed on.
  if (inherited.contains(kDeviceTable) && !variables.contains(kDeviceTable))
    variables.erase(kTableIsRing);
  return variables;
}

Variables environment_of(const Job& job, const RankPlan& rank, const Ports& ports,
                         const std::vector<ReachedHost>& reached, const Variables& inherited) {
  Variables variables = forwarded(inherited);
  const std::string meeting = addresses_of(job, job.ranks.front(), reached).front();
  const std::string& folder = reached[rank.host].folder;
  variables[kMark] = folder + "/";
  add_mccl(variables, job, rank, ports, meeting, folder);
  add_mlx(variables, job, rank, ports, meeting, folder, inherited);
  add_torch(variables, job, rank, ports, meeting, reached[rank.host]);
  // 0 makes ranks listen on free ports: jobs that run on one machine at the same time must not use
  // the same ports.
  if (job.all_here()) variables.emplace("MCCL_PORT_BASE", "0");
  if (!inherited.contains("PYTHONUNBUFFERED")) variables["PYTHONUNBUFFERED"] = "1";
  for (const auto& [name, value] : job.request.environment) variables[name] = value;
  for (const auto& [name, value] : job.entry_of(rank).environment) variables[name] = value;
  return variables;
}

std::string text_of(const Job& job, const Ports& ports, const std::vector<ReachedHost>& places,
                    const Variables& inherited, bool commands) {
  std::string text;
  for (const RankPlan& rank : job.ranks) {
    const Host& host = job.entry_of(rank);
    text += fmt::format("# rank {} of {}, on {}{}\n", rank.rank, job.size(),
                        printable(text_of(host)), is_here(host) ? " (this machine)" : ", by ssh");
    if (commands && !rank.directory.empty())
      text += fmt::format("cd {} &&\n", shell_word(rank.directory));
    for (const auto& [name, value] : environment_of(job, rank, ports, places, inherited))
      text += fmt::format("{}{}\n", variable_text(name, value), commands ? " \\" : "");
    if (commands) text += fmt::format("  {}\n", command_line(rank.argv));
  }
  if (commands && !job.all_here() && std::ranges::any_of(job.request.hosts, [](const Host& host) {
        return host.addresses.empty();
      }))
    text += "# Host names stand for the addresses at which ssh reaches the hosts.\n";
  return text;
}

std::string text_of(const Variables& variables) {
  std::string text;
  for (const auto& [name, value] : variables) text += variable_text(name, value) + "\n";
  return text;
}

}  // namespace mccl::cli::launch
