// Addresses of ports (GIDs), and the choice of two that can reach each other.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "transport/rdma/verbs/verbs.h"

namespace mccl::transport::rdma {

/// The kind of IP address that a GID contains.
enum class Family : std::uint8_t { ipv4, ipv6, link_local };
Family family_of(const GidBytes& gid);

/// Returns the type and the address as text, such as "RoCE v2 10.9.0.1" or "InfiniBand fe80::1".
std::string text_of(const Gid& gid);
std::string text_of(const GidBytes& gid);
std::string_view name_of(GidType type);
/// Returns the kind of a GID as text, such as "RoCE v2 over IPv4". Two addresses can reach each
/// other only if their kinds are equal.
std::string kind_of(const Gid& gid);

/// Returns the indices of the best two addresses of equal type and family. RoCE v2 is preferred to
/// RoCE v1; IPv4 to IPv6, and IPv6 to link-local. Among equals, the two with the longest common
/// prefix win, because the two addresses of one cable share a prefix. Both ends get the same
/// result, whatever the order of the lists.
std::optional<std::pair<std::size_t, std::size_t>> choose_gids(std::span<const Gid> here,
                                                               std::span<const Gid> there);

}  // namespace mccl::transport::rdma
