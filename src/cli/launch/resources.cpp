#include "cli/launch/resources.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "base/cores.h"
#include "base/first_line.h"
#include "base/value_text.h"
#include "cluster/text.h"
#include "mccl/error.h"
#include "transport/tcp/listener.h"

namespace mccl::cli::launch {
namespace {

using transport::tcp::Address;
using transport::tcp::Listener;

constexpr int kLargestPort = std::numeric_limits<std::uint16_t>::max();

/// It lies below the usual ephemeral ports of Linux (from 32768) and macOS (from 49152), so that
/// the system gives such a port to no other socket before the job's rank 0 listens there.
constexpr int kFirstPortOfJobs = 10'000;
constexpr int kLastPortOfJobs = 19'999;
constexpr int kMostTries = 20'000;

bool is_free(std::uint16_t port) {
  try {
    const Listener listener(Address::wildcard(AF_INET, port), 0);
    return true;
  } catch (const transport::tcp::BindError&) {
    return false;
  }
}

constexpr std::array<std::string_view, kBindToCount> kNames = {"share", "core", "none"};

/// Variables that make OpenMP runtimes bind threads. Ranks with one of them are not bound.
constexpr std::array kOfUser = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"};

std::vector<int> parse_list(std::string_view list) {
  const auto cores = parse_cores(fmt::format("{} 0 -", list));
  return cores ? cores->allowed : std::vector<int>();
}

/// Returns the processors of the control group, or of the nearest enclosing group that has a list,
/// or all that are online.
std::vector<int> of_control_group() {
  const std::string groups = contents_of("/proc/self/cgroup");
  const std::pair<const char*, std::string> versions[] = {{"", "/cpuset.cpus.effective"},
                                                          {"cpuset", "/cpuset.effective_cpus"}};
  for (const auto& [controller, name] : versions) {
    const std::string root = fmt::format("/sys/fs/cgroup/{}", controller);
    std::string path = control_group_path(groups, controller);
    for (;;) {
      std::vector<int> found = parse_list(first_line(fmt::format("{}{}{}", root, path, name)));
      if (!found.empty()) return found;
      if (path.empty() || path == "/") break;
      path.erase(path.rfind('/'));
    }
  }
  return parse_list(first_line("/sys/devices/system/cpu/online"));
}

std::string places_here() {
  std::string places;
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator("/sys/devices/system/cpu", ignored)) {
    const std::string name = entry.path().filename().string();
    const std::string topology = entry.path().string() + "/topology/";
    const std::string core = first_line(topology + "core_id");
    if (!name.starts_with("cpu") || core.empty()) continue;
    places += fmt::format("{}:{}:{} ", name.substr(3), first_line(topology + "physical_package_id"),
                          core);
  }
  return places;
}

/// Groups the processors into units that are not divided between ranks. A unit is a core with all
/// its threads if there is a core for each rank, else a single processor.
std::vector<std::vector<int>> units_of(const Processors& processors, std::size_t ranks) {
  if (processors.cores.size() >= ranks) return processors.cores;
  std::vector<std::vector<int>> alone;
  for (const std::vector<int>& core : processors.cores)
    for (const int processor : core) alone.push_back({processor});
  return alone;
}

std::string why_none(BindTo bind_to, const Processors& processors, std::size_t units,
                     const std::vector<Variables>& ranks) {
  if (bind_to == BindTo::none) return "--bind-to none";
  if (!processors.why_not.empty()) return processors.why_not;
  for (const Variables& variables : ranks)
    for (const char* name : kOfUser)
      if (variables.contains(name)) return fmt::format("{} is set", name);
  if (processors.cores.empty()) return "the host does not report its cores";
  if (ranks.size() > units ||
      (processors.quota > 0 && static_cast<double>(ranks.size()) > processors.quota))
    return "there are more ranks than cores";
  if (bind_to == BindTo::share && ranks.size() == 1) return "the only rank may use all cores";
  return {};
}

std::size_t ring_ports(const Job& job) {
  std::size_t ports = 0;
  for (const RankPlan& rank : job.ranks) {
    const std::size_t addresses = std::max<std::size_t>(1, job.entry_of(rank).addresses.size());
    ports += addresses * static_cast<std::size_t>(job.request.connections_per_address);
  }
  return ports;
}

}  // namespace

std::string_view name_of(BindTo bind_to) { return kNames[static_cast<std::size_t>(bind_to)]; }

std::vector<Binding> bindings_of(BindTo bind_to, const Processors& processors,
                                 const std::vector<Variables>& ranks) {
  std::vector<Binding> bindings(ranks.size());
  const std::vector<std::vector<int>> units = units_of(processors, ranks.size());
  const std::string why_not = why_none(bind_to, processors, units.size(), ranks);
  if (!why_not.empty()) {
    for (Binding& binding : bindings) binding.why_not = why_not;
    return bindings;
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const bool share = bind_to == BindTo::share;
    const std::size_t first = share ? rank * units.size() / ranks.size() : rank;
    const std::size_t end = share ? (rank + 1) * units.size() / ranks.size() : rank + 1;
    std::vector<int>& chosen = bindings[rank].processors;
    for (std::size_t unit = first; unit < end; ++unit)
      chosen.insert(chosen.end(), units[unit].begin(), units[unit].end());
    std::ranges::sort(chosen);
  }
  return bindings;
}

std::string list_of(const std::vector<int>& processors) {
  const std::string text = serialise(Cores{.allowed = processors});
  return text.substr(0, text.find(' '));
}

Processors processors_of(std::string_view list, std::string_view places) {
  using Place = std::pair<std::int64_t, std::int64_t>;  // The numbers of a socket and of a core.
  std::map<std::int64_t, Place> place_of;
  for (const std::string_view word : cluster::words_of(places)) {
    const auto parts = cluster::split(word, ':');
    if (parts.size() != 3) continue;
    const auto processor = parse_integer(parts[0]);
    const auto socket = parse_integer(parts[1]);
    const auto core = parse_integer(parts[2]);
    if (processor && socket && core) place_of[*processor] = {*socket, *core};
  }
  std::map<Place, std::vector<int>> cores;
  for (const int processor : parse_list(list)) {
    // A processor whose core is unknown counts as a core of its own.
    const Place& place = place_of.try_emplace(processor, 0, processor).first->second;
    cores[place].push_back(processor);
  }
  Processors processors;
  for (auto& [place, core] : cores) processors.cores.push_back(std::move(core));
  return processors;
}

Processors processors_here() {
  const Cores cores = cores_of_this_process();
  Processors processors = processors_of(list_of(cores.allowed), places_here());
  processors.quota = cores.quota;
  const std::vector<int> all = of_control_group();
  if (!all.empty() && cores.allowed.size() < all.size())
    processors.why_not =
        fmt::format("an affinity is already set, for example by taskset, to cores {} of {}",
                    list_of(cores.allowed), list_of(all));
  return processors;
}

std::vector<std::uint16_t> free_ports(std::size_t count) {
  std::random_device source;
  std::uniform_int_distribution<int> any(kFirstPortOfJobs, kLastPortOfJobs);
  std::set<std::uint16_t> ports;
  for (int tries = 0; ports.size() < count && tries < kMostTries; ++tries) {
    const auto port = static_cast<std::uint16_t>(any(source));
    if (is_free(port)) ports.insert(port);
  }
  if (ports.size() < count) {
    throw Error(fmt::format("no {} ports from {} to {} are free on this host; set --starting-port",
                            count, kFirstPortOfJobs, kLastPortOfJobs));
  }
  return {ports.begin(), ports.end()};
}

Ports ports_from(const Job& job, int first) {
  const std::size_t needed = ring_ports(job);
  if (first < 3 || static_cast<std::size_t>(first) + needed > kLargestPort + 1) {
    throw InvalidArgument(fmt::format(
        "--starting-port {}: the job needs {} ports from this port on, and the two ports "
        "before this port; the highest possible port is {}",
        first, needed, kLargestPort));
  }
  Ports ports{.root = static_cast<std::uint16_t>(first - 2),
              .master = static_cast<std::uint16_t>(first - 1),
              .ring = std::vector<std::uint16_t>(needed)};
  std::iota(ports.ring.begin(), ports.ring.end(), static_cast<std::uint16_t>(first));
  return ports;
}

std::vector<ReachedHost> expected_places(const Job& job) {
  std::vector<ReachedHost> places;
  for (const Host& host : job.hosts)
    places.push_back({is_here(host) && job.all_here() ? "127.0.0.1" : host.name, "FOLDER"});
  return places;
}

Ports choose_ports(const Job& job, const std::optional<int>& starting_port,
                   std::span<const ReachedHost> places) {
  if (starting_port) return ports_from(job, *starting_port);
  if (job.all_here()) {
    const std::vector<std::uint16_t> free = free_ports(2 + ring_ports(job));
    return {.root = free[0], .master = free[1], .ring = {free.begin() + 2, free.end()}};
  }
  const bool some_here = std::ranges::any_of(job.hosts, is_here);
  const auto is_taken = [&](std::uint16_t port) {
    return (some_here && !places.empty() && !is_free(port)) ||
           std::ranges::any_of(places,
                               [&](const ReachedHost& at) { return at.taken.contains(port); });
  };
  constexpr int kBlocks = 64;
  const auto needed = static_cast<int>(ring_ports(job));
  for (int block = 0; block < kBlocks; ++block) {
    const int first = kUsualPort + block * (2 + needed);
    if (first + needed > kLargestPort) break;
    Ports ports = ports_from(job, first);
    if (!is_taken(ports.root) && !is_taken(ports.master) &&
        std::ranges::none_of(ports.ring, is_taken))
      return ports;
  }
  return ports_from(job, kUsualPort);
}

}  // namespace mccl::cli::launch
