// The addresses of ports, and the choice of a pair that can reach each other.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "transport/rdma/verbs.h"

namespace mccl::transport::rdma {

/// What a GID is made of.
enum class Family : std::uint8_t { ipv4, ipv6, link_local };
Family family_of(const GidBytes& gid);

/// "RoCE v2 10.9.0.1", "InfiniBand fe80::1".
std::string text_of(const Gid& gid);
std::string text_of(const GidBytes& gid);
std::string_view name_of(GidType type);
/// "RoCE v2 over IPv4", the same at both ends of a pair that fits.
std::string kind_of(const Gid& gid);

/// The best of the pairs of the same type and family: RoCE v2 before v1, IPv4 before IPv6 before
/// link-local, and of several the two that have most in common from the left, as addresses of one
/// cable have. Alike at both ends, and independent of the order of either list. Places in the
/// lists.
std::optional<std::pair<std::size_t, std::size_t>> choose_gids(std::span<const Gid> here,
                                                               std::span<const Gid> there);

}  // namespace mccl::transport::rdma
