// Identifies the purpose of a connection.
#pragma once

#include <cstdint>
#include <tuple>

namespace mccl::transport {

enum class Purpose : std::uint8_t {
  control,
  collective,
  point_to_point,
  store,
  /// A trunk, on which neighbours exchange their knowledge of the cables (rendezvous/cabling/).
  cable,
  /// Connection that relays pass on. LinkKey::group is the target rank, and LinkKey::rail selects
  /// the receiver there.
  relay,
};
inline constexpr int kPurposeCount = 6;

/// `group` is 0 for control connections. `rail` numbers the parallel connections of a pair.
struct LinkKey {
  std::uint64_t group = 0;
  Purpose purpose = Purpose::control;
  std::uint8_t rail = 0;
  friend bool operator==(const LinkKey&, const LinkKey&) = default;
  friend bool operator<(const LinkKey& a, const LinkKey& b) {
    return std::tie(a.group, a.purpose, a.rail) < std::tie(b.group, b.purpose, b.rail);
  }
};

}  // namespace mccl::transport
