#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "cluster/checks.h"
#include "cluster/setup.h"
#include "cluster/text.h"

namespace mccl::cluster {
namespace {

/// Rate in Mbit/s above which a smaller share of the nominal rate is enough, because one TCP stream
/// does not fill a fast link.
constexpr int kFastLink = 10'000;
constexpr double kEnough = 0.5;         ///< A path is slow below this share of its nominal rate.
constexpr double kEnoughOfFast = 0.25;  ///< Share for nominal rates above kFastLink.
/// An unrouted path whose hardware reports no rate is slow if its measured rate is less than the
/// median rate of all such paths, divided by this number.
constexpr double kFarFromOthers = 6;
constexpr double kLongLatency = 2e-3;  ///< Latency above which a note is added, in seconds.

/// Returns instructions to open the ports of a job on the host.
std::string open_ports(const HostFacts& host, const InterfacePath& path) {
  if (host.system == System::macos)
    return fmt::format(
        "on {}: System Settings, Network, Firewall: allow incoming connections for mccl and Python",
        host.host);
  const char* family = path.is_ipv6() ? "ip6" : "ip";
  const std::string from = path.routed ? "" : fmt::format("{} saddr {} ", family, path.source);
  return fmt::format(
      "on {}: sudo nft insert rule inet filter input {}tcp dport {{ 29500, 29600-29700, "
      "32321-32400 }} accept{}",
      host.host, from, path.routed ? "" : fmt::format(", or sudo ufw allow from {}", path.source));
}

/// Returns the path in the other direction between the same addresses; null if there is none.
const InterfacePath* reverse_of(Paths paths, const InterfacePath& path) {
  const auto found = std::ranges::find_if(paths, [&](const InterfacePath& other) {
    return other.source == path.target && other.target == path.source && other.from == path.to &&
           other.to == path.from;
  });
  return found == paths.end() ? nullptr : &*found;
}

bool has_end(const Wire& wire, const End& end) {
  return std::ranges::find(wire.ends, end) != wire.ends.end();
}

/// True if a cable or a network joins the ends.
bool are_joined(const Connectivity& joined, const End& a, const End& b) {
  return std::ranges::any_of(joined.links,
                             [&](const CableLink& link) {
                               return (link.a == a && link.b == b) || (link.a == b && link.b == a);
                             }) ||
         std::ranges::any_of(joined.networks, [&](const Wire& wire) {
           return has_end(wire, a) && has_end(wire, b);
         });
}

/// Describes, for people, where the cable at `end` leads: to another interface, or to a network.
/// Empty if that is unknown.
std::string leads_to(Hosts hosts, const Connectivity& joined, const End& end) {
  for (const CableLink& link : joined.links) {
    if (link.a == end) return name_of(hosts, link.b);
    if (link.b == end) return name_of(hosts, link.a);
  }
  for (const Wire& wire : joined.networks)
    if (has_end(wire, end)) return fmt::format("a network of {} interfaces", wire.ends.size());
  return {};
}

Finding not_joined(Hosts hosts, const Connectivity& joined, const InterfacePath& path) {
  std::string what =
      fmt::format("{} and {} are in one network, but no cable joins their interfaces", path.source,
                  path.target);
  for (const End* end : {&path.from, &path.to}) {
    const std::string there = leads_to(hosts, joined, *end);
    if (!there.empty()) what += fmt::format("; {} leads to {}", name_of(hosts, *end), there);
  }
  return {"paths-crossed",
          Severity::problem,
          std::move(what),
          fmt::format("{}, {}", name_of(hosts, path.from), name_of(hosts, path.to)),
          "each host assumes a direct connection to the other, so the packets that it sends are "
          "lost",
          "change the cables, or remove one of these addresses; then run mccl config --auto-setup, "
          "which gives each cable its own network"};
}

/// Returns the interface through which the host routes to the IPv4 address; empty if unknown.
std::string way_to(const HostFacts& host, const std::string& address) {
  const auto target = parse_address(address);
  const Route* best = nullptr;
  for (const Route& route : host.routes)
    if (target && route.to.holds(*target) &&
        (best == nullptr || route.to.prefix_bits > best->to.prefix_bits))
      best = &route;
  return best == nullptr ? "" : best->interface;
}

/// Returns the far end of a cable from `end` to the host of `otherwise`. Returns `otherwise` if
/// there is no such cable.
End far_end(const Connectivity& joined, const End& end, const End& otherwise) {
  for (const CableLink& link : joined.links) {
    if (link.a == end && link.b.host == otherwise.host) return link.b;
    if (link.b == end && link.a.host == otherwise.host) return link.a;
  }
  return otherwise;
}

/// Detects packets from `source` to `target` that the receiving host drops because its rp_filter is
/// 1. Such packets arrive on one interface, but replies to `source` would leave through another
/// interface. The packets leave the sender through the interface that the sender's routes select,
/// or through the interface of `from` if no route is known.
std::optional<Finding> check_return(Hosts hosts, const Connectivity& joined, const End& from,
                                    const std::string& source, const End& to,
                                    const std::string& target) {
  const std::string leaves = way_to(host_of(hosts, from), target);
  const End in = far_end(joined, {from.host, leaves.empty() ? from.interface : leaves}, to);
  const HostFacts& host = host_of(hosts, to);
  const Interface* interface = host.interface(in.interface);
  const std::string back = way_to(host, source);
  if (interface == nullptr || interface->rp_filter != 1 || back.empty() || back == in.interface)
    return {};
  return Finding{
      "return-path-filtered",
      Severity::problem,
      fmt::format(
          "packets from {} to {} arrive at {}, but answers leave through {}; rp_filter is 1 on the "
          "receiving host",
          source, target, in.interface, back),
      fmt::format("{} to {}", name_of(hosts, from), host.host),
      "Linux drops packets that arrive at an interface through which answers would not leave",
      fmt::format("give each cable its own network with mccl config; or run on {}: sudo sysctl -w "
                  "net.ipv4.conf.all.rp_filter=2",
                  host.host)};
}

std::string ends_of(Hosts hosts, const InterfacePath& path) {
  return fmt::format("{} to {}", name_of(hosts, path.from), name_of(hosts, path.to));
}

Finding blocked(Hosts hosts, const InterfacePath& path, const InterfacePath* back) {
  const HostFacts& to = host_of(hosts, path.to);
  const bool all = std::ranges::none_of(path.faults, [](const auto& f) { return f.empty(); });
  const auto fault = std::ranges::find_if(path.faults, [](const auto& f) { return !f.empty(); });
  std::string what =
      fmt::format("{} at {} is not reached from {}: {}", path.target, name_of(hosts, path.to),
                  path.routed ? host_of(hosts, path.from).host : path.source, *fault);
  if (!all) what += "; other ports that a job uses are reached";
  if (all && back != nullptr && back->good()) what += "; the other direction is open";
  return {"path-blocked",
          Severity::problem,
          std::move(what),
          fmt::format("{} to {}", name_of(hosts, path.from), to.host),
          "ranks cannot connect to this address; a firewall blocks all or some of the ports of a "
          "job",
          open_ports(to, path)};
}

void check_connections(Hosts hosts, Paths paths, const Connectivity& joined, Findings& findings) {
  for (const InterfacePath& path : paths) {
    // A routed path that fails entirely is not reported here: the host may be reached at another of
    // its addresses. check_parts() reports hosts that are not reached at all.
    if (!path.tried || path.all_ports_good() || (path.routed && !path.good())) continue;
    const InterfacePath* back = reverse_of(paths, path);
    const bool leads_elsewhere =
        !are_joined(joined, path.from, path.to) &&
        (!leads_to(hosts, joined, path.from).empty() || !leads_to(hosts, joined, path.to).empty());
    if (!path.good() && leads_elsewhere) {
      // One finding covers both directions of the path.
      if (path.from < path.to || back == nullptr)
        findings.push_back(not_joined(hosts, joined, path));
      continue;
    }
    const bool silent = std::ranges::any_of(
        path.faults, [](const auto& f) { return f.find("timed out") != f.npos; });
    std::optional<Finding> dropped;
    if (silent) dropped = check_return(hosts, joined, path.from, path.source, path.to, path.target);
    if (silent && !dropped)
      dropped = check_return(hosts, joined, path.to, path.target, path.from, path.source);
    findings.push_back(dropped ? *dropped : blocked(hosts, path, back));
  }
}

void check_packets(Hosts hosts, Paths paths, Findings& findings) {
  for (const InterfacePath& path : paths) {
    if (!path.loses_packets()) continue;
    findings.push_back(
        {"packets-lost", Severity::problem,
         fmt::format("packets of {} bytes are lost on the way, although both ends "
                     "have an MTU of {}; packets of {} bytes arrive",
                     path.mtu, path.mtu, path.packet),
         ends_of(hosts, path), "connections open, but stall as soon as they carry much data",
         fmt::format("raise the MTU of the switch or bridge between the hosts, or "
                     "lower the MTU at both ends: sudo {}",
                     command_to_set(host_of(hosts, path.from).system, path.from.interface,
                                    fmt::format("mtu {}", path.packet)))});
  }
}

/// True if the path is not routed and its hardware reports no rate. The measured rate is then
/// compared with the rates of other such paths.
bool is_like_others(const InterfacePath& path) { return path.nominal_mbit == 0 && !path.routed; }

bool is_below_hardware(const InterfacePath& path) {
  const double share = path.nominal_mbit > kFastLink ? kEnoughOfFast : kEnough;
  return path.nominal_mbit > 0 && path.bytes_per_s * 8 / 1e6 < share * path.nominal_mbit;
}

/// Returns the median rate of the unrouted paths whose hardware reports no rate. Returns 0 if there
/// are fewer than four such paths.
double usual_rate(Paths paths) {
  std::vector<double> rates;
  for (const InterfacePath& path : paths)
    if (is_like_others(path) && path.bytes_per_s > 0) rates.push_back(path.bytes_per_s);
  std::ranges::sort(rates);
  return rates.size() < 4 ? 0 : rates[rates.size() / 2];
}

void check_rates(Hosts hosts, Paths paths, Findings& findings) {
  const std::vector<bool> slow = slow_ones(paths);
  const double usual = usual_rate(paths);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const InterfacePath& path = paths[i];
    if (path.bytes_per_s <= 0) continue;
    const std::string where = ends_of(hosts, path);
    if (slow[i]) {
      findings.push_back(
          {"path-slow", Severity::warning,
           fmt::format(
               "this link carries {}, {}", rate_text(path.bytes_per_s * 8 / 1e6),
               is_below_hardware(path)
                   ? fmt::format("but its hardware supports {}", rate_text(path.nominal_mbit))
                   : fmt::format("but similar links carry {}", rate_text(usual * 8 / 1e6))),
           where, "the slowest link limits the speed of a job",
           fmt::format("try another cable or port; to count errors on this one: {} {}",
                       host_of(hosts, path.from).system == System::macos ? "netstat -bI"
                                                                         : "ip -s link show",
                       path.from.interface)});
    }
    if (path.latency_s > kLongLatency)
      findings.push_back(
          {"path-late", Severity::note,
           fmt::format("a message takes {:.1f} ms", path.latency_s * 1e3), where,
           "a message over a cable takes less than 0.1 ms; the hosts may be busy, or far apart",
           ""});
  }
}

void check_parts(Hosts hosts, Paths paths, const Connectivity& joined, Findings& findings) {
  std::vector<Pair> pairs;
  std::set<Pair> with_paths;
  bool any_tried = false;
  for (const InterfacePath& path : paths) {
    any_tried = any_tried || path.tried;
    const Pair pair = std::minmax(path.from.host, path.to.host);
    with_paths.insert(pair);
    // An untried path in a common network counts as working. An untried routed path does not.
    if (path.good() || (!path.tried && !path.routed)) pairs.push_back(pair);
  }
  // Two hosts without a path between them count as joined if a link joins them.
  for (const CableLink& link : joined.links)
    if (const Pair pair{link.a.host, link.b.host}; !with_paths.contains(pair))
      pairs.push_back(pair);
  const auto parts = parts_of(static_cast<int>(hosts.size()), pairs);
  if (parts.size() < 2 || hosts.size() < 2) return;
  std::vector<std::string> texts;
  for (const std::vector<int>& part : parts) {
    std::vector<std::string> names;
    names.reserve(part.size());
    for (const int host : part) names.push_back(hosts[static_cast<std::size_t>(host)].host);
    texts.push_back(fmt::format("{}", fmt::join(names, ", ")));
  }
  findings.push_back(
      {"hosts-apart", any_tried ? Severity::problem : Severity::warning,
       fmt::format("the hosts form {} groups that no connection joins", parts.size()),
       fmt::format("{}", fmt::join(texts, " | ")),
       "a job needs a path from every host to every other host, directly or through other hosts",
       "see the findings above this one; mccl config shows the cables and gives them addresses"});
}

}  // namespace

std::vector<bool> slow_ones(Paths paths) {
  const double usual = usual_rate(paths);
  std::vector<bool> slow;
  for (const InterfacePath& path : paths) {
    const bool odd = is_like_others(path) && path.bytes_per_s * kFarFromOthers < usual;
    slow.push_back(path.bytes_per_s > 0 && (is_below_hardware(path) || odd));
  }
  return slow;
}

Findings check_paths(Hosts hosts, Paths paths, const Connectivity& joined) {
  Findings findings;
  check_connections(hosts, paths, joined, findings);
  check_packets(hosts, paths, findings);
  check_rates(hosts, paths, findings);
  check_parts(hosts, paths, joined, findings);
  return findings;
}

}  // namespace mccl::cluster
