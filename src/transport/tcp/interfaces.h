// What this host looks like to the network: its interfaces, its routes, its identity.
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
  /// Its cable leads somewhere. A system may tell so only a second after it came up.
  bool carrier = true;
  Medium medium = {};

  /// Whether `other` is in the subnet of this address.
  bool reaches(const Address& other) const;
  /// For people: "en0 10 Gbit/s MTU 1500".
  std::string text() const;
};

/// In the kernel's order. Throws Error.
std::vector<Interface> list_interfaces();

/// The one that has the address; null when none has.
const Interface* find_interface(const std::vector<Interface>& interfaces, const Address& address);

/// The local address that packets to `destination` leave from; empty when there is no route.
/// Sends nothing.
std::optional<Address> route_source(const Address& destination);

/// Equal for two processes exactly when they share a kernel and a network namespace, so that
/// loopback joins them. Printable, without spaces.
std::string host_identity();

/// Its name, of printable characters; "unknown" where it has none.
std::string host_name();

}  // namespace mccl::transport::tcp
