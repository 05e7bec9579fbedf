#include "cli/launch/rdma.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

constexpr std::size_t kMostNamed = 3;

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

/// Lists pairs without a device, such as "a (#0) to b (#1)", and the number of further ones. Empty
/// if all pairs have one.
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
  if (missing.size() <= kMostNamed) return fmt::format("{}", fmt::join(missing, ", "));
  const std::size_t more = missing.size() - kMostNamed;
  missing.resize(kMostNamed);
  return fmt::format("{} and {} more", fmt::join(missing, ", "), more);
}

}  // namespace

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
    return;  // Other backends do not read the table.
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

}  // namespace mccl::cli::launch
