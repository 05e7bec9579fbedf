// What an interface sends through, as far as the system tells: a cable or the air, how fast, and in
// packets of what size.
#pragma once

#include <string>

namespace mccl::transport::tcp {

struct Medium {
  /// The better first. Software: a bridge of containers, a tunnel; what it says of its speed is
  /// made up.
  enum class Kind { cable, wireless, software };
  Kind kind = Kind::cable;
  int mbit_per_s = 0;  ///< 0: not known.
  int mtu = 0;         ///< 0: not known.

  /// "10 Gbit/s MTU 1500", "wireless 866 Mbit/s MTU 1500"; empty when nothing is known.
  std::string text() const;

  friend bool operator==(const Medium&, const Medium&) = default;
};

/// A cable before the air, then the faster one; one of unknown speed after those that are known.
bool is_better(const Medium& a, const Medium& b);

/// All but the size of packets. `system` is the folder in which Linux tells of its interfaces;
/// other systems have none.
Medium medium_of(const std::string& interface_name, const std::string& system = "/sys/class/net");

}  // namespace mccl::transport::tcp
