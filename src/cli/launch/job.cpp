#include "cli/launch/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

using nlohmann::json;

constexpr int kMostRanks = 4096;
constexpr int kLargestPort = 65535;

/// Both ends of a job must agree on what these say, so hosts that ssh reaches get them too.
constexpr std::string_view kForwarded[] = {"MCCL_", "MLX_", "NCCL_"};

bool is_script(const std::string& program) { return program.ends_with(".py"); }

const std::string& first_of(const std::string& own, const std::string& common) {
  return own.empty() ? common : own;
}

std::vector<std::string> argv_of(const Request& request, const Host& host) {
  std::vector<std::string> argv = request.program;
  if (is_script(argv.front())) argv.insert(argv.begin(), first_of(host.python, request.python));
  return argv;
}

int ranks_of(const Request& request, const Host& host) {
  return request.ranks_per_host.value_or(host.slots.value_or(1));
}

/// The addresses that a host listens at: those it was given, or the one it was reached by.
std::vector<std::string> addresses_of(const Job& job, std::size_t host,
                                      const std::vector<Reached>& reached) {
  if (!job.hosts[host].addresses.empty()) return job.hosts[host].addresses;
  return {reached[host].address};
}

std::string with_port(const std::string& address, int port) {
  const bool v6 = address.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", address, port) : fmt::format("{}:{}", address, port);
}

void add_mlx(Variables& variables, const Job& job, const Rank& rank, const Ports& ports,
             const std::string& meeting, const std::string& folder) {
  variables["MLX_RANK"] = std::to_string(rank.rank);
  variables["MLX_WORLD_SIZE"] = std::to_string(job.size());
  variables["MLX_HOSTFILE"] = folder + "/" + kRingFile;
  variables["NCCL_HOST_IP"] = meeting;
  variables["NCCL_PORT"] = std::to_string(job.request.nccl_port);
  if (job.request.backend == Backend::nccl)
    variables["CUDA_VISIBLE_DEVICES"] = std::to_string(rank.local_rank);
  if (job.hosts.front().rdma.is_array()) {
    variables["MLX_JACCL_COORDINATOR"] = with_port(meeting, ports.ring.front());
    variables["MLX_IBV_DEVICES"] = folder + "/" + kDevicesFile;
  }
  if (job.request.backend == Backend::jaccl_ring) variables["MLX_JACCL_RING"] = std::string("1");
}

void add_torch(Variables& variables, const Job& job, const Rank& rank, const Ports& ports,
               const std::string& meeting) {
  variables["RANK"] = std::to_string(rank.rank);
  variables["WORLD_SIZE"] = std::to_string(job.size());
  variables["LOCAL_RANK"] = std::to_string(rank.local_rank);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(job.ranks_on(rank.host));
  variables["GROUP_RANK"] = std::to_string(rank.host);
  variables["MASTER_ADDR"] = meeting;
  variables["MASTER_PORT"] = std::to_string(ports.master);
}

void add_mccl(Variables& variables, const Job& job, const Rank& rank, const Ports& ports,
              const std::string& meeting) {
  variables["MCCL_RANK"] = std::to_string(rank.rank);
  variables["MCCL_WORLD_SIZE"] = std::to_string(job.size());
  variables["MCCL_ROOT"] = with_port(meeting, ports.root);
  variables["MCCL_JOB_KEY"] = job.key;
  const std::vector<std::string>& listed = job.hosts[rank.host].addresses;
  if (!listed.empty()) variables["MCCL_LISTEN_ADDR"] = fmt::format("{}", fmt::join(listed, ","));
}

}  // namespace

const char* name_of(Backend backend) {
  constexpr const char* kNames[] = {"any", "ring", "jaccl", "jaccl-ring", "nccl", "mpi"};
  return kNames[static_cast<int>(backend)];
}

int Job::ranks_on(std::size_t host) const {
  return static_cast<int>(
      std::ranges::count_if(ranks, [&](const Rank& rank) { return rank.host == host; }));
}

bool Job::all_here() const { return std::ranges::all_of(hosts, is_here); }

Job plan_job(const Request& request, std::string key) {
  Job job{.request = request, .hosts = {}, .ranks = {}, .key = std::move(key)};
  std::map<std::string, std::size_t> known;
  for (const Host& host : request.hosts) {
    const auto [place, is_new] = known.emplace(text_of(host), job.hosts.size());
    if (is_new) job.hosts.push_back(host);
    for (int i = 0; i < ranks_of(request, host); ++i) {
      if (job.size() == kMostRanks)
        throw InvalidArgument(
            fmt::format("more than {} ranks; give fewer hosts or slots", kMostRanks));
      job.ranks.push_back({.rank = job.size(),
                           .host = place->second,
                           .local_rank = job.ranks_on(place->second),
                           .argv = argv_of(request, host),
                           .directory = first_of(host.directory, request.directory)});
    }
  }
  return job;
}

std::size_t ring_ports(const Job& job) {
  std::size_t ports = 0;
  for (const Rank& rank : job.ranks) {
    const std::size_t addresses = std::max<std::size_t>(1, job.hosts[rank.host].addresses.size());
    ports += addresses * static_cast<std::size_t>(job.request.connections_per_address);
  }
  return ports;
}

Ports ports_from(const Job& job, int first) {
  const std::size_t needed = ring_ports(job);
  if (first < 3 || static_cast<std::size_t>(first) + needed > kLargestPort + 1) {
    throw InvalidArgument(
        fmt::format("--starting-port {}: the job needs {} ports from it on, and two before it; the "
                    "last port is {}",
                    first, needed, kLargestPort));
  }
  Ports ports{.root = static_cast<std::uint16_t>(first - 2),
              .master = static_cast<std::uint16_t>(first - 1),
              .ring = {}};
  for (std::size_t i = 0; i < needed; ++i)
    ports.ring.push_back(static_cast<std::uint16_t>(static_cast<std::size_t>(first) + i));
  return ports;
}

std::string ring_file(const Job& job, const Ports& ports, const std::vector<Reached>& reached) {
  json file = json::array();
  auto port = ports.ring.begin();
  for (const Rank& rank : job.ranks) {
    json places = json::array();
    for (const std::string& address : addresses_of(job, rank.host, reached)) {
      for (int i = 0; i < job.request.connections_per_address; ++i)
        places.push_back(with_port(address, *port++));
    }
    file.push_back(std::move(places));
  }
  return file.dump();
}

std::string devices_file(const Job& job) {
  if (!job.hosts.front().rdma.is_array()) return {};
  json file = json::array();
  for (const Rank& rank : job.ranks) {
    json row = json::array();
    for (const Rank& peer : job.ranks) row.push_back(job.hosts[rank.host].rdma[peer.host]);
    file.push_back(std::move(row));
  }
  return file.dump();
}

Variables environment_of(const Job& job, const Rank& rank, const Ports& ports,
                         const std::vector<Reached>& reached, const Variables& inherited) {
  Variables variables;
  for (const auto& variable : inherited) {
    const std::string& name = variable.first;
    const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
    if (std::ranges::any_of(kForwarded, begins)) variables.insert(variable);
  }
  const std::string meeting = addresses_of(job, 0, reached).front();
  add_mccl(variables, job, rank, ports, meeting);
  add_mlx(variables, job, rank, ports, meeting, reached[rank.host].folder);
  add_torch(variables, job, rank, ports, meeting);
  // On one machine, jobs beside each other must not meet at a port.
  if (job.all_here()) variables.emplace("MCCL_PORT_BASE", "0");
  if (!inherited.contains("PYTHONUNBUFFERED")) variables["PYTHONUNBUFFERED"] = std::string("1");
  for (const auto& [name, value] : job.request.environment) variables[name] = value;
  for (const auto& [name, value] : job.hosts[rank.host].environment) variables[name] = value;
  return variables;
}

}  // namespace mccl::cli::launch
