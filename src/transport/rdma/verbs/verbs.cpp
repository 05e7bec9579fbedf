#include "transport/rdma/verbs/verbs.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <system_error>
#include <tuple>

namespace mccl::transport::rdma {
namespace {

constexpr std::size_t kIpv4At = 12;

int rank_of(GidType type) {
  switch (type) {
    case GidType::roce_v2:
      return 3;
    case GidType::infiniband:
      return 2;
    case GidType::unknown:
      return 1;
    case GidType::roce_v1:
      return 0;
  }
  return 0;
}

int rank_of(Family family) { return 2 - static_cast<int>(family); }

int common_bits(const GidBytes& a, const GidBytes& b) {
  int bits = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto differ = static_cast<std::uint8_t>(a[i] ^ b[i]);
    bits += std::countl_zero(differ);
    if (differ != 0) break;
  }
  return bits;
}

}  // namespace

VerbsError::VerbsError(std::string_view call, std::string_view device, int code)
    : Error(fmt::format("{} of {}: {}", call, device, describe_code(code))), code_(code) {}

std::string describe_code(int code) {
  return fmt::format("{} (errno {})", std::generic_category().message(code), code);
}

std::string_view name_of(Service service) { return service == Service::rc ? "rc" : "uc"; }

std::string_view name_of(LinkLayer layer) {
  constexpr std::string_view kNames[] = {"unknown", "InfiniBand", "Ethernet"};
  return kNames[static_cast<std::size_t>(layer)];
}

std::string describe_status(int status) {
  constexpr std::string_view kTexts[] = {
      "success",
      "a message longer than its buffer, or than the port allows",
      "the queue pair could not carry out the request",
      "bad end-to-end context",
      "memory that is not registered for this access",
      "dropped, since the queue pair had failed before",
      "bad memory window",
      "the response was not understood",
      "local access error",
      "the other end refuses the request",
      "the other end refuses the access",
      "the other end could not carry out the request",
      "the other end does not answer",
      "the other end had no buffer",
  };
  const auto index = static_cast<std::size_t>(status);
  const std::string_view text =
      status >= 0 && index < std::size(kTexts) ? kTexts[index] : "the device reports an error";
  return fmt::format("{} (completion status {})", text, status);
}

Family family_of(const GidBytes& gid) {
  const bool zeros = std::all_of(gid.begin(), gid.begin() + 10, [](auto b) { return b == 0; });
  if (zeros && gid[10] == 0xff && gid[11] == 0xff) return Family::ipv4;
  return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80 ? Family::link_local : Family::ipv6;
}

std::string text_of(const GidBytes& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  if (family_of(gid) == Family::ipv4) {
    ::inet_ntop(AF_INET, gid.data() + kIpv4At, text, sizeof text);
  } else {
    ::inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  }
  return text;
}

std::string text_of(const Gid& gid) {
  return fmt::format("{} {}", name_of(gid.type), text_of(gid.bytes));
}

std::string_view name_of(GidType type) {
  constexpr std::string_view kNames[] = {"RDMA", "InfiniBand", "RoCE v1", "RoCE v2"};
  return kNames[static_cast<std::size_t>(type)];
}

std::string kind_of(const Gid& gid) {
  constexpr std::string_view kFamilies[] = {"IPv4", "IPv6", "link-local IPv6"};
  return fmt::format("{} over {}", name_of(gid.type),
                     kFamilies[static_cast<std::size_t>(family_of(gid.bytes))]);
}

std::optional<std::pair<std::size_t, std::size_t>> choose_gids(std::span<const Gid> here,
                                                               std::span<const Gid> there) {
  using Merit = std::tuple<int, int, int, GidBytes, GidBytes>;
  std::optional<std::pair<std::size_t, std::size_t>> best;
  Merit most;
  for (std::size_t a = 0; a < here.size(); ++a) {
    for (std::size_t b = 0; b < there.size(); ++b) {
      const Family family = family_of(here[a].bytes);
      if (here[a].type != there[b].type || family != family_of(there[b].bytes)) continue;
      // Orders the two addresses, so that both ends compute the same merit.
      const auto [low, high] = std::minmax(here[a].bytes, there[b].bytes);
      const Merit merit{rank_of(here[a].type), rank_of(family),
                        common_bits(here[a].bytes, there[b].bytes), low, high};
      if (best && merit <= most) continue;
      best = {a, b};
      most = merit;
    }
  }
  return best;
}

}  // namespace mccl::transport::rdma
