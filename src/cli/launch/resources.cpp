#include "cli/launch/resources.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <sstream>
#include <tuple>

#include "base/cores.h"
#include "base/first_line.h"
#include "base/value_text.h"
#include "cli/kit/file.h"
#include "mccl/error.h"
#include "transport/tcp/listener.h"

namespace mccl::cli::launch {
namespace {

using transport::tcp::Address;
using transport::tcp::Listener;

constexpr int kLargestPort = std::numeric_limits<std::uint16_t>::max();

/// True if nothing listens at the port on this machine.
bool is_free(std::uint16_t port) {
  try {
    const Listener listener(Address::wildcard(AF_INET, port), 0);
    return true;
  } catch (const transport::tcp::BindError&) {
    return false;
  }
}

constexpr std::array<std::string_view, kBindToCount> kNames = {"share", "core", "none"};

/// Environment variables of OpenMP runtimes that bind threads to cores. If the user has set one,
/// the launcher adds no binding of its own.
constexpr std::array kOfUser = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"};

std::vector<int> parse_list(std::string_view list) {
  const auto cores = parse_cores(fmt::format("{} 0 -", list));
  return cores ? cores->allowed : std::vector<int>();
}

/// Returns the processors that this process's control group allows: those of the group itself or,
/// if the group has no list, of the nearest enclosing group that has one. Falls back to all
/// processors that are online.
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
  std::vector<std::vector<int>> cores;
  int last = -1;
  for (const auto& [processor, core] : processors.allowed) {
    if (cores.empty() || core != last) cores.emplace_back();
    cores.back().push_back(processor);
    last = core;
  }
  if (cores.size() >= ranks) return cores;
  std::vector<std::vector<int>> alone;
  for (const auto& place : processors.allowed) alone.push_back({place.first});
  return alone;
}

std::string why_none(BindTo bind_to, const Processors& processors,
                     const std::vector<Variables>& ranks) {
  if (bind_to == BindTo::none) return "--bind-to none";
  if (!processors.why_not.empty()) return processors.why_not;
  for (const Variables& variables : ranks)
    for (const char* name : kOfUser)
      if (variables.contains(name)) return fmt::format("{} is set", name);
  if (processors.allowed.empty()) return "the host does not report its cores";
  if (ranks.size() > processors.allowed.size() ||
      (processors.quota > 0 && static_cast<double>(ranks.size()) > processors.quota))
    return "there are more ranks than cores";
  if (bind_to == BindTo::share && ranks.size() == 1) return "the only rank may use all cores";
  return {};
}

}  // namespace

std::string_view name_of(BindTo bind_to) { return kNames[static_cast<std::size_t>(bind_to)]; }

std::vector<Binding> bindings_of(BindTo bind_to, const Processors& processors,
                                 const std::vector<Variables>& ranks) {
  std::vector<Binding> bindings(ranks.size());
  const std::string why_not = why_none(bind_to, processors, ranks);
  if (!why_not.empty()) {
    for (Binding& binding : bindings) binding.why_not = why_not;
    return bindings;
  }
  const std::vector<std::vector<int>> units = units_of(processors, ranks.size());
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
  std::map<int, std::pair<std::int64_t, std::int64_t>> place_of;
  std::istringstream words{std::string(places)};
  for (std::string word; words >> word;) {
    const std::size_t first = word.find(':');
    const std::size_t second = word.find(':', first + 1);
    if (first == word.npos || second == word.npos) continue;
    const auto processor = parse_integer(word.substr(0, first));
    const auto socket = parse_integer(word.substr(first + 1, second - first - 1));
    const auto core = parse_integer(word.substr(second + 1));
    if (processor && socket && core) place_of[static_cast<int>(*processor)] = {*socket, *core};
  }
  std::vector<std::tuple<std::int64_t, std::int64_t, int>> ordered;
  for (const int processor : parse_list(list)) {
    const auto found = place_of.find(processor);
    // A processor whose core is unknown counts as a core of its own.
    const auto place = found == place_of.end() ? std::pair<std::int64_t, std::int64_t>(0, processor)
                                               : found->second;
    ordered.emplace_back(place.first, place.second, processor);
  }
  std::ranges::sort(ordered);
  Processors processors;
  int core = -1;
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    const auto& [socket, number, processor] = ordered[i];
    const bool same =
        i > 0 && std::get<0>(ordered[i - 1]) == socket && std::get<1>(ordered[i - 1]) == number;
    if (!same) ++core;
    processors.allowed.emplace_back(processor, core);
  }
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
  std::vector<Listener> held;
  std::vector<std::uint16_t> ports;
  held.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    held.emplace_back(*Address::parse_numeric("0.0.0.0", 0), 0);
    ports.push_back(held.back().address().port());
  }
  return ports;
}

std::size_t ring_ports(const Job& job) {
  std::size_t ports = 0;
  for (const RankPlan& rank : job.ranks) {
    const std::size_t addresses = std::max<std::size_t>(1, job.entry_of(rank).addresses.size());
    ports += addresses * static_cast<std::size_t>(job.request.connections_per_address);
  }
  return ports;
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
              .ring = {}};
  for (std::size_t i = 0; i < needed; ++i)
    ports.ring.push_back(static_cast<std::uint16_t>(static_cast<std::size_t>(first) + i));
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
  for (int block = 0; block < kBlocks; ++block) {
    const int first = kUsualPort + block * static_cast<int>(2 + ring_ports(job));
    if (first + static_cast<int>(ring_ports(job)) > kLargestPort) break;
    Ports ports = ports_from(job, first);
    if (!is_taken(ports.root) && !is_taken(ports.master) &&
        std::ranges::none_of(ports.ring, is_taken))
      return ports;
  }
  return ports_from(job, kUsualPort);
}

}  // namespace mccl::cli::launch
