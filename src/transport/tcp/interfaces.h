// Network interfaces, routes and identity of this host.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "transport/tcp/address.h"
#include "transport/tcp/medium.h"

namespace mccl::transport::tcp {

/// One address of one interface.
struct Interface {
  std::string name;
  Address address;
  int prefix_bits = 0;
  bool up = false;
  bool loopback = false;
  /// True if a cable is connected. A system may report this up to a second after the interface came
  /// up.
  bool carrier = true;
  Medium medium = {};

  /// True if `other` is in the subnet of this address.
  bool reaches(const Address& other) const;
  /// Human-readable: "en0 10 Gbit/s MTU 1500".
  std::string text() const;
};

/// Returns the interfaces in the kernel's order. Throws Error.
std::vector<Interface> list_interfaces();

/// Returns the interface that has the address; null if none has.
const Interface* find_interface(const std::vector<Interface>& interfaces, const Address& address);

/// Returns the local address from which packets to `destination` leave; empty if there is no route.
/// Sends nothing.
std::optional<Address> route_source(const Address& destination);

/// Returns the same text for two processes exactly if they share a kernel and a network namespace,
/// and can therefore connect over loopback. The text is printable and has no spaces.
std::string host_identity();

/// Host name, reduced to printable characters; "unknown" if gethostname fails.
std::string host_name();

}  // namespace mccl::transport::tcp
