#include "transport/tcp/medium.h"

#include <fmt/format.h>

#ifdef __APPLE__
#include <net/if.h>
#include <net/if_media.h>
#include <net/route.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/sysctl.h>

#include <array>
#include <cctype>
#include <cstring>
#include <string_view>
#include <vector>

#include "transport/tcp/socket.h"
#endif

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/first_line.h"

namespace mccl::transport::tcp {

std::string Medium::text() const {
  std::string text = kind == Kind::wireless ? "wireless" : "";
  const auto add = [&](const std::string& word) { text += (text.empty() ? "" : " ") + word; };
  if (mbit_per_s >= 1000) {
    add(fmt::format("{:g} Gbit/s", mbit_per_s / 1000.0));
  } else if (mbit_per_s > 0) {
    add(fmt::format("{} Mbit/s", mbit_per_s));
  }
  if (mtu > 0) add(fmt::format("MTU {}", mtu));
  return text;
}

bool is_better(const Medium& a, const Medium& b) {
  if (a.kind != b.kind) return a.kind < b.kind;
  return a.mbit_per_s > b.mbit_per_s;
}

#ifdef __APPLE__

namespace {

/// True for interfaces without a cable or antenna, and for Apple's peer-to-peer wireless
/// interfaces.
bool is_software(std::string_view name) {
  for (const std::string_view prefix :
       {"utun", "awdl", "llw", "vmenet", "gif", "stf", "ap", "anpi"}) {
    if (name.starts_with(prefix)) return true;
  }
  // bridge0 joins the Thunderbolt ports; the bridges of virtual machines are numbered from 100.
  constexpr std::string_view kBridge = "bridge";
  return name.starts_with(kBridge) && name.size() >= kBridge.size() + 3;
}

bool is_wireless(const std::string& name) {
  const Socket probe(::socket(AF_INET, SOCK_DGRAM, 0));
  ifmediareq request = {};
  name.copy(request.ifm_name, sizeof request.ifm_name - 1);
  return probe && ::ioctl(probe.descriptor(), SIOCGIFMEDIA, &request) == 0 &&
         IFM_TYPE(request.ifm_current) == IFM_IEEE80211;
}

}  // namespace

/// Uses the 64-bit interface list (NET_RT_IFLIST2): the older list cannot represent more than 4
/// Gbit/s.
Medium medium_of(const std::string& name, const std::string&) {
  Medium medium;
  if (is_software(name)) medium.kind = Medium::Kind::software;
  if (is_wireless(name)) medium.kind = Medium::Kind::wireless;
  std::array<int, 6> path = {
      CTL_NET, PF_ROUTE, 0, 0, NET_RT_IFLIST2, static_cast<int>(::if_nametoindex(name.c_str()))};
  std::size_t length = 0;
  if (::sysctl(path.data(), path.size(), nullptr, &length, nullptr, 0) != 0) return medium;
  std::vector<char> list(length);
  if (::sysctl(path.data(), path.size(), list.data(), &length, nullptr, 0) != 0) return medium;
  if_msghdr2 entry;
  if (length < sizeof entry) return medium;
  std::memcpy(&entry, list.data(), sizeof entry);
  if (entry.ifm_type != RTM_IFINFO2) return medium;
  if (medium.kind != Medium::Kind::software)
    medium.mbit_per_s = static_cast<int>(entry.ifm_data.ifi_baudrate / 1'000'000);
  return medium;
}

#else

namespace {

namespace fs = std::filesystem;

/// Deepest nesting of bonds and bridges that is followed.
constexpr int kMostLayers = 4;

int number_of(const fs::path& path) {
  return std::max(0, static_cast<int>(std::strtol(first_line(path).c_str(), nullptr, 10)));
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Returns the best kind of the interface itself and of the interfaces that it bonds, bridges or
/// tags.
Medium::Kind kind_of(const fs::path& interface, int layers) {
  if (is_there(interface / "wireless") || is_there(interface / "phy80211"))
    return Medium::Kind::wireless;
  if (is_there(interface / "device")) return Medium::Kind::cable;
  Medium::Kind best = Medium::Kind::software;
  if (layers == 0) return best;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(interface, ignored)) {
    if (entry.path().filename().string().starts_with("lower_"))
      best = std::min(best, kind_of(entry.path(), layers - 1));
  }
  return best;
}

/// The driver for networks over Thunderbolt reports no speed, but its port does, per lane: "20.0
/// Gb/s".
int thunderbolt_mbit(const fs::path& interface) {
  std::error_code failure;
  const fs::path device = fs::canonical(interface / "device", failure);
  if (failure) return 0;
  const fs::path port = device.parent_path();
  const std::string speed = first_line(port / "rx_speed");
  if (!speed.ends_with("Gb/s")) return 0;
  return static_cast<int>(1000 * std::strtod(speed.c_str(), nullptr)) *
         std::max(1, number_of(port / "rx_lanes"));
}

}  // namespace

Medium medium_of(const std::string& name, const std::string& system) {
  const fs::path interface = fs::path(system) / name;
  Medium medium;
  medium.kind = kind_of(interface, kMostLayers);
  if (medium.kind == Medium::Kind::software) return medium;
  medium.mbit_per_s = number_of(interface / "speed");
  if (medium.mbit_per_s == 0) medium.mbit_per_s = thunderbolt_mbit(interface);
  return medium;
}

#endif

}  // namespace mccl::transport::tcp
