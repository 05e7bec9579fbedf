// Network interfaces, routes and identity of this host.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "transport/tcp/address.h"

namespace mccl::transport::tcp {

struct Medium {
  /// Ordered from best to worst. `software` is an interface without hardware, such as a container
  /// bridge or a tunnel; the speed that it reports is meaningless.
  enum class Kind { cable, wireless, software };
  Kind kind = Kind::cable;
  int mbit_per_s = 0;  ///< 0 if unknown.
  int mtu = 0;         ///< 0 if unknown.

  /// "10 Gbit/s MTU 1500", "wireless 866 Mbit/s MTU 1500"; empty if nothing is known.
  std::string text() const;

  friend bool operator==(const Medium&, const Medium&) = default;
};

/// True if `a` is better than `b`: first by Kind, then by speed, where an unknown speed is the
/// worst.
bool is_better(const Medium& a, const Medium& b);

/// Returns the medium of an interface, without the MTU. `system` is the directory in which Linux
/// describes its interfaces; unused on macOS.
Medium medium_of(const std::string& interface_name, const std::string& system = "/sys/class/net");

struct InterfaceAddress {
  std::string name;
  Address address;
  int prefix_bits = 0;
  bool up = false;
  bool loopback = false;
  /// True if a cable is connected. May be false for up to a second after the interface came up,
  /// until the system has detected the cable.
  bool carrier = true;
  Medium medium = {};

  /// True if `other` is in the subnet of this address.
  bool reaches(const Address& other) const;
  /// Human-readable: "en0 10 Gbit/s MTU 1500".
  std::string text() const;
};

/// Returns the IPv4 and IPv6 addresses of all interfaces in kernel order. Throws Error on failure.
std::vector<InterfaceAddress> list_interfaces();

/// Returns the interface that has the address; null if no interface has it.
const InterfaceAddress* find_interface(const std::vector<InterfaceAddress>& interfaces,
                                       const Address& address);

/// Returns the local address from which packets to `destination` leave; empty if there is no route.
/// Sends nothing.
std::optional<Address> route_source(const Address& destination);

/// Returns a text that identifies the kernel and the network namespace of this process. Two
/// processes with equal texts can connect over loopback. The text is printable and has no spaces.
/// It contains the host name if the system does not report the kernel or the namespace.
std::string host_identity();

}  // namespace mccl::transport::tcp
