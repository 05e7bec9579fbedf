#include "cli/launch/hostfile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>

#include "base/json_text.h"
#include "base/nearest.h"
#include "base/node_list.h"
#include "base/value_text.h"
#include "cli/kit/file.h"
#include "cluster/text.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 9> kHostKeys = {"ssh", "ips", "rdma", "slots", "python",
                                                       "cwd", "env", "user", "port"};
constexpr std::array<std::string_view, 4> kFileKeys = {"backend", "envs", "env", "hosts"};

/// A position in the file, for error messages: the file and the path to a value.
struct ValuePath {
  std::string path;

  ValuePath at(std::string_view key) const { return {fmt::format("{}.{}", path, key)}; }
  ValuePath at(std::size_t index) const { return {fmt::format("{}[{}]", path, index)}; }

  [[noreturn]] void refuse(std::string_view expected, const json& found) const {
    throw InvalidArgument(
        fmt::format("{}: expected {}; found {}", path, expected,
                    printable(found.dump(-1, ' ', false, json::error_handler_t::replace))));
  }
};

void note_unknown_keys(const ValuePath& place, const json& object,
                       std::span<const std::string_view> known, std::vector<std::string>& unknown) {
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const auto near = nearest_of(key, known);
    unknown.push_back(
        fmt::format("{} of {}{}", in_quotes(key), place.path,
                    near ? fmt::format(" (did you mean {}?)", in_quotes(*near)) : ""));
  }
}

std::string text_at(const ValuePath& place, const json& value) {
  if (!value.is_string()) place.refuse("text in quotes", value);
  std::string text = value.get<std::string>();
  if (text.find('\0') != text.npos) place.refuse("text without a NUL", value);
  return text;
}

int integer_at(const ValuePath& place, const json& value, int least, int most) {
  if (!value.is_number_integer() || value < least || value > most)
    place.refuse(fmt::format("an integer from {} to {}", least, most), value);
  return value.get<int>();
}

/// Parses {"NAME": "VALUE"}, or MLX's form ["NAME=VALUE"].
std::map<std::string, std::string> variables_at(const ValuePath& place, const json& value) {
  std::map<std::string, std::string> variables;
  if (value.is_object()) {
    for (const auto& [name, text] : value.items()) {
      const std::string& there = text_at(place.at(name), text);
      variables.insert(parse_variable(place.path, fmt::format("{}={}", name, there)));
    }
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i)
      variables.insert(parse_variable(place.at(i).path, text_at(place.at(i), value[i])));
  } else {
    place.refuse("a list of \"NAME=VALUE\", or an object", value);
  }
  return variables;
}

bool is_place(const ValuePath& place, const std::string& text) {
  if (std::ranges::count(text, ':') == 1) return false;  // A single colon precedes a port.
  const Host host = parse_host(place.path, text);
  return host.user.empty() && host.port == 0 && host.name == text;
}

std::vector<std::string> addresses_at(const ValuePath& place, const json& value) {
  if (!value.is_array()) place.refuse("a list of addresses", value);
  std::vector<std::string> addresses;
  for (std::size_t i = 0; i < value.size(); ++i) {
    addresses.push_back(text_at(place.at(i), value[i]));
    if (!is_place(place.at(i), addresses.back()))
      place.at(i).refuse("an address of the host, or its name, without a port", value[i]);
  }
  return addresses;
}

/// Each entry must be null, the name of a device, or a list of such names.
const json& rdma_at(const ValuePath& place, const json& value) {
  if (!value.is_array()) place.refuse("a list with a device for each of the hosts", value);
  for (std::size_t i = 0; i < value.size(); ++i) {
    const json& device = value[i];
    const bool names = device.is_array() && std::ranges::all_of(device, [](const json& name) {
                         return name.is_string();
                       });
    if (!device.is_null() && !device.is_string() && !names)
      place.at(i).refuse("null, a device, or a list of devices", device);
  }
  return value;
}

Host host_at(const ValuePath& place, const json& entry, std::vector<std::string>& unknown) {
  if (!entry.is_object()) place.refuse("an object with \"ssh\"", entry);
  note_unknown_keys(place, entry, kHostKeys, unknown);
  if (!entry.contains("ssh")) place.refuse("\"ssh\", the name of the host", entry);
  Host host = parse_host(place.at("ssh").path, text_at(place.at("ssh"), entry["ssh"]));
  for (const auto& [key, value] : entry.items()) {
    const ValuePath here = place.at(key);
    if (key == "ips") host.addresses = addresses_at(here, value);
    if (key == "slots") host.slots = integer_at(here, value, 1, kMostRanks);
    if (key == "port") host.port = integer_at(here, value, 1, 65535);
    if (key == "python") host.python = text_at(here, value);
    if (key == "cwd") host.directory = text_at(here, value);
    if (key == "env") host.environment = variables_at(here, value);
    if (key == "user") host.user = parse_host(here.path, text_at(here, value) + "@host").user;
    if (key == "rdma" && !value.empty()) host.rdma = rdma_at(here, value);
  }
  return host;
}

void read_hosts(const ValuePath& place, const json& list, Hostfile& file) {
  const std::string expected = fmt::format("a list of 1 to {} hosts", kMostHosts);
  if (!list.is_array() || list.empty()) place.refuse(expected, list);
  if (list.size() > kMostHosts)
    throw InvalidArgument(
        fmt::format("{}: expected {}; found {}", place.path, expected, list.size()));
  for (std::size_t i = 0; i < list.size(); ++i)
    file.hosts.push_back(host_at(place.at(i), list[i], file.unknown_keys));
  check_rdma(place.path, file.hosts, Backend::any);
}

constexpr std::size_t kMostLinksNamed = 3;

bool leads_nowhere(const nlohmann::json& device) {
  return device.is_null() || device.empty() ||
         (device.is_string() && device.get<std::string>().empty());
}

std::string name_of_entry(const std::vector<Host>& hosts, std::size_t host) {
  return fmt::format("{} (#{})", printable(text_of(hosts[host])), host);
}

void refuse_devices_to_itself(std::string_view where, const std::vector<Host>& hosts) {
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    if (leads_nowhere(hosts[host].rdma[host])) continue;
    throw InvalidArgument(fmt::format(
        "{}: \"rdma\" of {}: expected null for the host itself, which is number {} in "
        "the list; found {}",
        where, name_of_entry(hosts, host), host, printable(hosts[host].rdma[host].dump())));
  }
}

[[noreturn]] void refuse_incomplete_table(std::string_view where, const std::vector<Host>& hosts,
                                          Backend backend) {
  const auto has_none = [](const Host& host) { return !host.rdma.is_array(); };
  if (std::ranges::all_of(hosts, has_none)) {
    throw InvalidArgument(
        fmt::format("{}: {} needs \"rdma\" devices for every host; give them in a --hostfile",
                    where, name_of(backend)));
  }
  std::size_t faulty = 0;
  while (!has_none(hosts[faulty]) && hosts[faulty].rdma.size() == hosts.size()) ++faulty;
  throw InvalidArgument(fmt::format(
      "{}: \"rdma\" of {}: {} needs a list with a device for each of the {} hosts; found {}", where,
      name_of_entry(hosts, faulty), name_of(backend), hosts.size(),
      has_none(hosts[faulty]) ? "none" : printable(hosts[faulty].rdma.dump())));
}

/// Returns pairs without a device, such as "a (#0) to b (#1) and 3 more". `ring`: only neighbours.
std::string missing_links(const std::vector<Host>& hosts, bool ring) {
  std::vector<std::string> missing;
  const std::size_t count = hosts.size();
  for (std::size_t host = 0; host < count; ++host) {
    for (std::size_t peer = 0; peer < count; ++peer) {
      const bool neighbours = (host + 1) % count == peer || (peer + 1) % count == host;
      if (host == peer || (ring && !neighbours) || !leads_nowhere(hosts[host].rdma[peer])) continue;
      missing.push_back(
          fmt::format("{} to {}", name_of_entry(hosts, host), name_of_entry(hosts, peer)));
    }
  }
  if (missing.size() <= kMostLinksNamed) return fmt::format("{}", fmt::join(missing, ", "));
  const std::size_t more = missing.size() - kMostLinksNamed;
  missing.resize(kMostLinksNamed);
  return fmt::format("{} and {} more", fmt::join(missing, ", "), more);
}

[[noreturn]] void refuse_tasks(const std::string& text) {
  throw InvalidArgument(fmt::format(
      "SLURM_TASKS_PER_NODE: {} is not a list of task counts; expected a list such as 4(x2),3",
      in_quotes(text)));
}

int count_of(std::string_view text, const std::string& whole) {
  const auto count = parse_integer(text);
  if (!count || *count < 1 || *count > kMostRanks) refuse_tasks(whole);
  return static_cast<int>(*count);
}

}  // namespace

const char* name_of(Backend backend) {
  constexpr const char* kNames[] = {"any", "ring", "jaccl", "jaccl-ring", "nccl", "mpi"};
  return kNames[static_cast<int>(backend)];
}

Hostfile parse_hostfile(std::string_view name, std::string_view text) {
  const json read = parse_json(
      text, name, R"(JSON, a list of hosts such as [{"ssh": "desk"}, {"ssh": "big", "slots": 2}])");
  const ValuePath place{std::string(name)};
  Hostfile file;
  if (read.is_array()) {
    read_hosts(place, read, file);
    return file;
  }
  if (!read.is_object()) place.refuse("a list of hosts, or an object with \"hosts\"", read);
  note_unknown_keys(place, read, kFileKeys, file.unknown_keys);
  if (!read.contains("hosts")) place.refuse("\"hosts\"", read);
  if (read.contains("backend")) file.backend = text_at(place.at("backend"), read["backend"]);
  for (const char* key : {"envs", "env"})
    if (read.contains(key)) file.environment.merge(variables_at(place.at(key), read[key]));
  read_hosts(place.at("hosts"), read["hosts"], file);
  return file;
}

Hostfile read_hostfile(const std::string& path) {
  Hostfile hosts = parse_hostfile(printable(path), read_file(printable(path), path, "a hostfile"));
  fmt::print(stderr, "{}", warning_of(hosts));
  return hosts;
}

std::string warning_of(const Hostfile& file) {
  if (file.unknown_keys.empty()) return {};
  constexpr std::size_t kMostNamed = 5;
  const std::size_t named = std::min(file.unknown_keys.size(), kMostNamed);
  const std::size_t more = file.unknown_keys.size() - named;
  return fmt::format(
      "mccl: WARN: unknown keys of the hostfile are ignored: {}{}. A host may have the keys {}; an "
      "object around the hosts may have the keys {}\n",
      fmt::join(std::span(file.unknown_keys).first(named), ", "),
      more > 0 ? fmt::format(" and {} more", more) : "", fmt::join(kHostKeys, ", "),
      fmt::join(kFileKeys, ", "));
}

std::string table_of(const Hostfile& file) {
  cluster::TableRows rows = {{"#", "host", "addresses", "slots", "rdma"}};
  for (std::size_t i = 0; i < file.hosts.size(); ++i) {
    const Host& host = file.hosts[i];
    rows.push_back({std::to_string(i), printable(text_of(host)),
                    host.addresses.empty() ? "(by routing)"
                                           : fmt::format("{}", fmt::join(host.addresses, ",")),
                    host.slots ? std::to_string(*host.slots) : "-",
                    host.rdma.is_array() ? printable(host.rdma.dump()) : "-"});
  }
  return cluster::table_text(rows);
}

bool is_whole_table(const std::vector<Host>& hosts) {
  return std::ranges::all_of(hosts, [&](const Host& host) {
    return host.rdma.is_array() && host.rdma.size() == hosts.size();
  });
}

void check_rdma(std::string_view where, const std::vector<Host>& hosts, Backend backend) {
  const bool mesh = backend == Backend::jaccl;
  const bool ring = backend == Backend::jaccl_ring;
  if (!is_whole_table(hosts)) {
    if (mesh || ring) refuse_incomplete_table(where, hosts, backend);
    return;  // Only jaccl and jaccl-ring read the table.
  }
  refuse_devices_to_itself(where, hosts);
  const std::string of_mesh = missing_links(hosts, false);
  const std::string of_ring = missing_links(hosts, true);
  if (mesh && !of_mesh.empty()) {
    throw InvalidArgument(fmt::format(
        "{}: \"rdma\" has no device from {}; jaccl needs one from every host to every "
        "other{}",
        where, of_mesh, of_ring.empty() ? ", but these devices suffice for jaccl-ring" : ""));
  }
  if (!mesh && !of_ring.empty()) {
    throw InvalidArgument(fmt::format(
        "{}: \"rdma\" has no device from {}; even a ring needs one from every host to the host "
        "before it and to the host after it",
        where, of_ring));
  }
}

std::vector<int> expand_tasks_per_node(const std::string& text) {
  std::vector<int> tasks;
  for (const std::string_view item : cluster::split(text, ',')) {
    const std::size_t times = item.find("(x");
    if (times != item.npos && item.back() != ')') refuse_tasks(text);
    const int repeated =
        times == item.npos ? 1 : count_of(item.substr(times + 2, item.size() - times - 3), text);
    tasks.insert(tasks.end(), static_cast<std::size_t>(repeated),
                 count_of(item.substr(0, times), text));
    if (tasks.size() > kMostHosts) refuse_tasks(text);
  }
  return tasks;
}

std::vector<Host> hosts_of_allocation(const std::map<std::string, std::string>& environment) {
  const auto nodes = environment.find("SLURM_JOB_NODELIST");
  if (nodes == environment.end()) {
    throw InvalidArgument(
        "--slurm: this is not a Slurm allocation: SLURM_JOB_NODELIST is not set; run it under "
        "salloc or sbatch, or give --hosts");
  }
  std::vector<Host> hosts;
  for (const std::string& name : expand_node_list(nodes->second, kMostHosts))
    hosts.push_back(parse_host("SLURM_JOB_NODELIST", name));
  const auto tasks = environment.find("SLURM_TASKS_PER_NODE");
  if (tasks == environment.end()) return hosts;
  const std::vector<int> slots = expand_tasks_per_node(tasks->second);
  if (slots.size() != hosts.size()) {
    throw InvalidArgument(
        fmt::format("--slurm: SLURM_JOB_NODELIST lists {} nodes, but SLURM_TASKS_PER_NODE lists "
                    "{}; give --hosts",
                    hosts.size(), slots.size()));
  }
  for (std::size_t i = 0; i < hosts.size(); ++i) hosts[i].slots = slots[i];
  return hosts;
}

}  // namespace mccl::cli::launch
