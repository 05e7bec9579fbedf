// What joins hosts: cables between two interfaces, and networks that many are in.
#pragma once

#include <compare>
#include <span>
#include <string>
#include <vector>

#include "cluster/finding.h"
#include "cluster/host_facts.h"
#include "cluster/ring.h"

namespace mccl::cluster {

/// An interface of a host; hosts go by their number.
struct End {
  int host = 0;
  std::string interface;

  friend auto operator<=>(const End&, const End&) = default;  // NOLINT(modernize-use-nullptr)
};

/// A cable from one end to the other; the end of the lower host comes first.
struct Link {
  End a;
  End b;
  Medium medium = Medium::cable;
  int mbit_per_s = 0;  ///< Of the slower end; 0: not known.
  bool through_dock = false;
};

/// The ends of all that can hear each other, where those are more than two.
struct Wire {
  std::vector<End> ends;
  Medium medium = Medium::cable;
  int mbit_per_s = 0;
};

/// `at` has heard a call of `from`.
struct Heard {
  End at;
  End from;

  friend auto operator<=>(const Heard&, const Heard&) = default;  // NOLINT(modernize-use-nullptr)
};

/// What came of all hosts' calls through their interfaces.
struct Calls {
  std::vector<Heard> heard;
  /// Calls that arrived, and whose caller did not answer the question whether they were its own.
  std::vector<Heard> unanswered;
  std::vector<int> deaf;  ///< Hosts that can hear no calls.
};

struct Joined {
  std::vector<Link> links;
  std::vector<Wire> networks;
};

/// Cables by the names that Thunderbolt gives ports. What only one end sees, or leads back to the
/// same host, is a finding. Who heard whom tells several cables of a pair apart.
std::vector<Link> thunderbolt_links(std::span<const HostFacts> hosts, std::span<const Heard> heard,
                                    std::vector<Finding>& findings);

/// From who has heard whom. Interfaces that nobody heard, and which have addresses, are taken to be
/// joined where those are of the same network.
Joined joined_by(std::span<const HostFacts> hosts, std::span<const Heard> heard);

/// Whether they have different addresses of one network.
bool same_network(const Interface& a, const Interface& b);

/// Adds those of whose ends nothing is known yet.
void add_links(Joined& joined, std::span<const Link> links);

/// Cables of a pair together; one of unknown speed counts as the slowest that is known.
Capacities capacities_of(int hosts, std::span<const Link> links);

/// The link seen from this host: its own end, and the other.
const End& own_end(const Link& link, int host);
const End& other_end(const Link& link, int host);

/// For people: "a (en5) to b (en3)".
std::string text_of(const Link& link, std::span<const HostFacts> hosts);

/// A table of all, for people.
std::string table_of(const Joined& joined, std::span<const HostFacts> hosts);

}  // namespace mccl::cluster
