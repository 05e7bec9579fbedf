// Connections between hosts: cables between two interfaces, and networks of several interfaces.
#pragma once

#include <compare>
#include <span>
#include <string>
#include <vector>

#include "cluster/finding.h"
#include "cluster/host_facts.h"
#include "cluster/ring.h"

namespace mccl::cluster {

/// An interface of a host. `host` is an index into the list of hosts that is passed to the
/// functions below.
struct End {
  int host = 0;
  std::string interface;

  friend auto operator<=>(const End&, const End&) = default;  // NOLINT(modernize-use-nullptr)
};

const HostFacts& host_of(Hosts hosts, const End& end);
/// Returns null if the host did not report the interface.
const Interface* interface_of(Hosts hosts, const End& end);
/// Returns a text for people, such as "a (en5)"; only the host's name if `end` has no interface.
std::string name_of(Hosts hosts, const End& end);

/// A cable between two interfaces. `a` is the end at the host with the lower index.
struct CableLink {
  End a;
  End b;
  InterfaceKind medium = InterfaceKind::cable;
  int mbit_per_s = 0;  ///< Rate of the slower end; 0 if unknown.
  bool through_dock = false;

  friend auto operator<=>(const CableLink&,
                          const CableLink&) = default;  // NOLINT(modernize-use-nullptr)
};

using Links = std::span<const CableLink>;

/// A network that joins several interfaces, usually more than two.
struct Wire {
  std::vector<End> ends;
  InterfaceKind medium = InterfaceKind::cable;
  int mbit_per_s = 0;
};

/// Records that a discovery message sent through `from` was received at `at`.
struct Heard {
  End at;
  End from;

  friend auto operator<=>(const Heard&, const Heard&) = default;  // NOLINT(modernize-use-nullptr)
};

/// The results of the discovery messages ("calls") that all hosts sent; see cli/probe/packets.h.
struct CallResults {
  std::vector<Heard> heard;
  /// Messages that arrived, but whose sender did not answer the receiver's challenge.
  std::vector<Heard> unanswered;
  std::vector<int> deaf;  ///< Hosts that cannot receive discovery messages.
};

struct Connectivity {
  std::vector<CableLink> links;
  std::vector<Wire> networks;
};

/// Finds cables from the UUIDs that Thunderbolt gives to ports. Uses `heard` to distinguish several
/// cables between the same two hosts. Adds a finding for each cable that only one end reports, that
/// leads back to the same host or to an unknown computer, or that has no interface at one end.
std::vector<CableLink> thunderbolt_links(Hosts hosts, std::span<const Heard> heard,
                                         Findings& findings);

/// Derives the links and networks from the discovery messages that were received. Interfaces that
/// exchanged no messages count as joined if they have addresses in the same network.
Connectivity joined_by(Hosts hosts, std::span<const Heard> heard);

/// True if the interfaces have different addresses in a common network.
bool same_network(const Interface& a, const Interface& b);

/// Adds to `joined` each of `links` whose two ends are both absent from `joined`.
void add_links(Connectivity& joined, Links links);

/// Returns the sum of the rates of each pair's cables. A cable of unknown rate counts as fast as
/// the slowest cable of known rate.
Capacities capacities_of(int hosts, Links links);

/// Returns the connected components of the graph whose vertices are the hosts and whose edges are
/// `pairs`. The largest component is the first.
std::vector<std::vector<int>> parts_of(int hosts, std::span<const Pair> pairs);

const End& own_end(const CableLink& link, int host);
const End& other_end(const CableLink& link, int host);

/// Returns a table of all links and networks, for people.
std::string table_of(const Connectivity& joined, Hosts hosts);

/// Returns a graph in Graphviz's DOT language, for `dot -Tsvg`. The graph selects the circo layout,
/// which suits rings.
std::string dot_of(const Connectivity& joined, Hosts hosts);

}  // namespace mccl::cluster
