// The medium of an interface as the system reports it: cable or wireless, speed and packet size.
#pragma once

#include <string>

namespace mccl::transport::tcp {

struct Medium {
  /// Ordered from best to worst. `software` is a bridge of containers or a tunnel; the speed that
  /// it reports is meaningless.
  enum class Kind { cable, wireless, software };
  Kind kind = Kind::cable;
  int mbit_per_s = 0;  ///< 0 if unknown.
  int mtu = 0;         ///< 0 if unknown.

  /// "10 Gbit/s MTU 1500", "wireless 866 Mbit/s MTU 1500"; empty if nothing is known.
  std::string text() const;

  friend bool operator==(const Medium&, const Medium&) = default;
};

/// Compares first by Kind, then by speed; an unknown speed is the worst.
bool is_better(const Medium& a, const Medium& b);

/// Returns the medium of an interface, without the MTU. `system` is the folder in which Linux
/// describes its interfaces; unused on other systems.
Medium medium_of(const std::string& interface_name, const std::string& system = "/sys/class/net");

}  // namespace mccl::transport::tcp
