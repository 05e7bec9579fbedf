// Detects firewalls that drop the discovery messages ("calls") which hosts send through their
// cables.
#pragma once

#include <span>
#include <vector>

#include "cluster/finding.h"
#include "cluster/links.h"

namespace mccl::cluster {

/// Finds hosts that cannot receive discovery messages, and hosts that do not receive the answers to
/// the messages that they sent.
std::vector<Finding> check_calls(std::span<const HostFacts> hosts, const Calls& calls);

/// Finds interfaces that have a carrier but exchanged no discovery message, perhaps because a
/// firewall dropped it. Used when cables appear to be missing. Returns at most one finding, which
/// lists all these interfaces.
std::vector<Finding> check_silence(std::span<const HostFacts> hosts, const Calls& calls);

}  // namespace mccl::cluster
