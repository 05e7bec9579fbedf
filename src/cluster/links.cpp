#include "cluster/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/cabling.h"
#include "base/value_text.h"
#include "cluster/text.h"

namespace mccl::cluster {
namespace {

struct PortEnd {
  int host = 0;
  const ThunderboltPort* port = nullptr;
  bool joined = false;
};

std::string place_of(const HostFacts& host, const ThunderboltPort& port) {
  return fmt::format("{}, Thunderbolt port {}", host.host, port.receptacle);
}

/// Returns the lower of two rates; 0 stands for an unknown rate.
int slower_of(int a, int b) { return a == 0 || (b > 0 && b < a) ? b : a; }

CableLink link_between(Hosts hosts, const End& a, const End& b) {
  CableLink link{.a = std::min(a, b), .b = std::max(a, b)};
  for (const End* end : {&link.a, &link.b}) {
    const Interface* interface = interface_of(hosts, *end);
    if (interface == nullptr) continue;
    link.medium = interface->kind;
    link.mbit_per_s = slower_of(link.mbit_per_s, interface->mbit_per_s);
  }
  return link;
}

/// Returns a port that has no link yet, that `one` reports as its peer, and that reports `one` as
/// its own peer; end() if there is none. Linux reports the UUID of the computer rather than the
/// port, so several ports may match. A port that exchanged discovery messages with `one` is
/// preferred.
std::vector<PortEnd>::iterator other_end_of(const PortEnd& one, std::vector<PortEnd>& sockets,
                                            std::span<const Heard> heard) {
  const auto hears = [&](const PortEnd& other) {
    const End a{one.host, one.port->interface};
    const End b{other.host, other.port->interface};
    return std::ranges::any_of(heard, [&](const Heard& each) {
      return (each.at == a && each.from == b) || (each.at == b && each.from == a);
    });
  };
  auto best = sockets.end();
  for (auto socket = sockets.begin(); socket != sockets.end(); ++socket) {
    if (&*socket == &one || socket->joined || one.port->own.empty() ||
        socket->port->own != one.port->peer_id || socket->port->peer_id != one.port->own)
      continue;
    if (hears(*socket)) return socket;
    if (best == sockets.end()) best = socket;
  }
  return best;
}

void note_port(Findings& findings, const char* id, const HostFacts& host,
               const ThunderboltPort& port, Severity severity, std::string what, std::string cure) {
  findings.push_back({id, severity, std::move(what), place_of(host, port),
                      "this cable provides no link between hosts of the cluster", std::move(cure)});
}

/// Groups the interfaces that are joined directly or through other interfaces (union-find).
class Together {
 public:
  void join(const End& a, const End& b) { root_of(b) = root_of(a); }

  std::map<End, std::vector<End>> groups() {
    std::map<End, std::vector<End>> groups;
    for (const auto& [end, parent] : parents_) groups[root_of(end)].push_back(end);
    return groups;
  }

  bool knows(const End& end) const { return parents_.contains(end); }

 private:
  End& root_of(const End& end) {
    auto place = parents_.try_emplace(end, end).first;
    while (place->second != place->first) place = parents_.find(place->second);
    return place->second;
  }

  std::map<End, End> parents_;
};

/// Returns the received messages without duplicates. Drops a message if one of its two interfaces
/// was not reported by the interface's own host, because a host is not trusted to name interfaces
/// of another host. Also drops messages from a host to itself.
std::set<Heard> heard_of(Hosts hosts, std::span<const Heard> heard) {
  std::set<End> ends;
  for (std::size_t host = 0; host < hosts.size(); ++host)
    for (const Interface& interface : hosts[host].interfaces)
      ends.insert({static_cast<int>(host), interface.name});
  std::set<Heard> known;
  for (const Heard& each : heard)
    if (each.at.host != each.from.host && ends.contains(each.at) && ends.contains(each.from))
      known.insert(each);
  return known;
}

void join_by_addresses(Hosts hosts, Together& together) {
  std::vector<std::pair<End, const Interface*>> unheard;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    for (const Interface& interface : hosts[host].interfaces) {
      End end{static_cast<int>(host), interface.name};
      if (interface.may_join_hosts() && !together.knows(end)) unheard.emplace_back(end, &interface);
    }
  }
  for (std::size_t i = 0; i < unheard.size(); ++i)
    for (std::size_t k = i + 1; k < unheard.size(); ++k)
      if (unheard[i].first.host != unheard[k].first.host &&
          same_network(*unheard[i].second, *unheard[k].second))
        together.join(unheard[i].first, unheard[k].first);
}

constexpr const char* kBegin = R"(graph cluster {
  layout=circo;
  mindist=1.8;
  nodesep=0.7;
  node [shape=box, style=rounded, fontname="Helvetica", width=1.5];
  edge [fontname="Helvetica", fontsize=10, penwidth=2, labeldistance=2];
)";

/// Quotes and escapes a text as a DOT string.
std::string quoted(const std::string& text) {
  std::string safe;
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') safe += '\\';
    safe += c;
  }
  return fmt::format("\"{}\"", safe);
}

const char* colour_of(InterfaceKind medium) {
  switch (medium) {
    case InterfaceKind::thunderbolt:
      return "#b4540a";
    case InterfaceKind::wireless:
      return "#9aa0a6";
    default:
      return "#1f5fa8";
  }
}

}  // namespace

const HostFacts& host_of(Hosts hosts, const End& end) {
  return hosts[static_cast<std::size_t>(end.host)];
}

const Interface* interface_of(Hosts hosts, const End& end) {
  return host_of(hosts, end).interface(end.interface);
}

std::string name_of(Hosts hosts, const End& end) {
  const std::string& host = host_of(hosts, end).host;
  return end.interface.empty() ? host : fmt::format("{} ({})", host, end.interface);
}

bool same_network(const Interface& a, const Interface& b) {
  return std::ranges::any_of(a.addresses, [&](const Network& one) {
    return std::ranges::any_of(b.addresses, [&](const Network& n) { return one.is_beside(n); });
  });
}

std::vector<CableLink> thunderbolt_links(Hosts hosts, std::span<const Heard> heard,
                                         Findings& findings) {
  std::vector<PortEnd> sockets;
  for (std::size_t host = 0; host < hosts.size(); ++host)
    for (const ThunderboltPort& port : hosts[host].ports)
      sockets.push_back({static_cast<int>(host), &port, false});
  std::vector<CableLink> links;
  for (PortEnd& one : sockets) {
    if (one.joined || one.port->peer_id.empty()) continue;
    const HostFacts& host = hosts[static_cast<std::size_t>(one.host)];
    const auto other = other_end_of(one, sockets, heard);
    if (other != sockets.end() && other->host != one.host) {
      one.joined = other->joined = true;
      CableLink link = link_between(hosts, {one.host, one.port->interface},
                                    {other->host, other->port->interface});
      link.medium = InterfaceKind::thunderbolt;
      if (link.mbit_per_s == 0) link.mbit_per_s = one.port->mbit_per_s;
      link.through_dock = one.port->through_dock || other->port->through_dock;
      if (!link.a.interface.empty() && !link.b.interface.empty()) {
        links.push_back(std::move(link));
        continue;
      }
      note_port(findings, "thunderbolt-no-interface", host, *one.port, Severity::problem,
                "one end of the cable in this port has no network interface",
                "run networksetup -detectnewhardware, or plug the cable in again");
      continue;
    }
    if (other != sockets.end()) {
      other->joined = true;
      note_port(findings, "thunderbolt-loop", host, *one.port, Severity::warning,
                "the cable in this port leads to another port of the same host",
                "plug one end into another host");
      continue;
    }
    const bool known = std::ranges::any_of(
        sockets, [&](const PortEnd& socket) { return socket.port->own == one.port->peer_id; });
    note_port(
        findings, known ? "thunderbolt-one-sided" : "thunderbolt-stranger", host, *one.port,
        known ? Severity::warning : Severity::note,
        known ? "this port detects a cable that the port at the other end does not detect"
              : fmt::format("the cable in this port leads to {}, which is not one of these hosts",
                            one.port->peer.empty() ? "a computer" : one.port->peer),
        known ? "unplug the cable, plug it in again, then run this command again"
              : "name that host too if it should take part");
  }
  std::ranges::sort(links);
  return links;
}

Connectivity joined_by(Hosts hosts, std::span<const Heard> heard) {
  Together together;
  for (const Heard& each : heard_of(hosts, heard)) together.join(each.from, each.at);
  join_by_addresses(hosts, together);
  Connectivity joined;
  for (const auto& [root, ends] : together.groups()) {
    if (ends.size() == 2) {
      joined.links.push_back(link_between(hosts, ends[0], ends[1]));
    } else if (ends.size() > 2) {
      Wire wire{.ends = ends, .medium = InterfaceKind::loopback, .mbit_per_s = 0};
      for (std::size_t i = 1; i < ends.size(); ++i) {
        const CableLink link = link_between(hosts, ends[0], ends[i]);
        wire.medium = link.medium;
        wire.mbit_per_s = slower_of(wire.mbit_per_s, link.mbit_per_s);
      }
      joined.networks.push_back(std::move(wire));
    }
  }
  std::ranges::sort(joined.links);
  return joined;
}

void add_links(Connectivity& joined, Links links) {
  std::set<End> known;
  for (const CableLink& link : joined.links) known.insert({link.a, link.b});
  for (const Wire& wire : joined.networks) known.insert(wire.ends.begin(), wire.ends.end());
  for (const CableLink& link : links)
    if (!known.contains(link.a) && !known.contains(link.b)) joined.links.push_back(link);
  std::ranges::sort(joined.links);
}

Capacities capacities_of(int hosts, Links links) {
  int slowest = 0;
  for (const CableLink& link : links) slowest = slower_of(slowest, link.mbit_per_s);
  Capacities capacities(hosts);
  for (const CableLink& link : links)
    capacities.add(link.a.host, link.b.host,
                   link.mbit_per_s > 0 ? link.mbit_per_s : std::max(1, slowest));
  return capacities;
}

std::vector<std::vector<int>> parts_of(int hosts, std::span<const Pair> pairs) {
  std::vector<Cable> cables(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) std::tie(cables[i].a, cables[i].b) = pairs[i];
  return Cabling(hosts, std::move(cables)).parts();
}

const End& own_end(const CableLink& link, int host) {
  return link.a.host == host ? link.a : link.b;
}
const End& other_end(const CableLink& link, int host) {
  return link.a.host == host ? link.b : link.a;
}

std::string table_of(const Connectivity& joined, Hosts hosts) {
  TableRows rows = {{"host", "interface", "", "host", "interface", "kind", "speed"}};
  const auto name = [&](const End& end) { return host_of(hosts, end).host; };
  for (const CableLink& link : joined.links) {
    rows.push_back(
        {name(link.a), link.a.interface, "to", name(link.b), link.b.interface,
         fmt::format("{}{}", name_of(link.medium), link.through_dock ? ", through a dock" : ""),
         rate_text(link.mbit_per_s)});
  }
  for (const Wire& wire : joined.networks) {
    for (const End& end : wire.ends)
      rows.push_back({name(end), end.interface, "in", "a network", "",
                      fmt::format("{} of {}", name_of(wire.medium), wire.ends.size()),
                      rate_text(wire.mbit_per_s)});
  }
  return rows.size() == 1 ? "no cable and no network joins these hosts\n" : table_text(rows);
}

std::string dot_of(const Connectivity& joined, Hosts hosts) {
  std::string text = kBegin;
  const auto name = [&](const End& end) { return quoted(host_of(hosts, end).host); };
  for (const HostFacts& host : hosts) text += fmt::format("  {};\n", quoted(host.host));
  for (const CableLink& link : joined.links) {
    text += fmt::format("  {} -- {} [label={}, taillabel={}, headlabel={}, color=\"{}\"];\n",
                        name(link.a), name(link.b), quoted(rate_text(link.mbit_per_s)),
                        quoted(link.a.interface), quoted(link.b.interface), colour_of(link.medium));
  }
  for (std::size_t i = 0; i < joined.networks.size(); ++i) {
    const Wire& wire = joined.networks[i];
    const std::string hub = quoted(fmt::format("network {}", i + 1));
    text += fmt::format("  {} [shape=ellipse];\n", hub);
    for (const End& end : wire.ends)
      text += fmt::format("  {} -- {} [label={}, taillabel={}, color=\"{}\"];\n", name(end), hub,
                          quoted(rate_text(wire.mbit_per_s)), quoted(end.interface),
                          colour_of(wire.medium));
  }
  return text + "}\n";
}

}  // namespace mccl::cluster
