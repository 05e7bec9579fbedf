#include "transport/tcp/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::transport::tcp {

namespace {

constexpr std::size_t kMaxHostBytes = 255;

bool is_mapped(const in6_addr& address) { return IN6_IS_ADDR_V4MAPPED(&address); }

std::optional<std::uint32_t> scope_of(const std::string& text) {
  if (const unsigned index = if_nametoindex(text.c_str()); index != 0) return index;
  const auto index = parse_integer(text).value_or(0);
  if (index < 1 || index > std::numeric_limits<std::uint32_t>::max()) return {};
  return static_cast<std::uint32_t>(index);
}

}  // namespace

std::optional<Address> Address::from(const sockaddr* raw, socklen_t length) {
  Address address;
  if (raw == nullptr) return {};
  if (raw->sa_family == AF_INET && length >= sizeof(sockaddr_in)) {
    std::memcpy(&address.storage_, raw, sizeof(sockaddr_in));
    address.size_ = sizeof(sockaddr_in);
    return address;
  }
  if (raw->sa_family != AF_INET6 || length < sizeof(sockaddr_in6)) return {};
  sockaddr_in6 v6;
  std::memcpy(&v6, raw, sizeof v6);
  if (is_mapped(v6.sin6_addr)) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage_);
    v4.sin_family = AF_INET;
    v4.sin_port = v6.sin6_port;
    std::memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, 4);
    address.size_ = sizeof(sockaddr_in);
    return address;
  }
  v6.sin6_flowinfo = 0;
  std::memcpy(&address.storage_, &v6, sizeof v6);
  address.size_ = sizeof v6;
  return address;
}

std::optional<Address> Address::parse_numeric(std::string_view host, std::uint16_t port) {
  if (host.empty() || host.size() > kMaxHostBytes) return {};
  const std::size_t percent = host.find('%');
  const std::string number(host.substr(0, percent));
  sockaddr_in v4 = {};
  if (percent == std::string_view::npos && inet_pton(AF_INET, number.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    return from(reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
  }
  sockaddr_in6 v6 = {};
  if (inet_pton(AF_INET6, number.c_str(), &v6.sin6_addr) != 1) return {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  if (percent != std::string_view::npos) {
    const auto scope = scope_of(std::string(host.substr(percent + 1)));
    if (!scope) return {};
    v6.sin6_scope_id = *scope;
  }
  return from(reinterpret_cast<const sockaddr*>(&v6), sizeof v6);
}

Address Address::wildcard(int family, std::uint16_t port) {
  return *parse_numeric(family == AF_INET6 ? "::" : "0.0.0.0", port);
}

std::uint16_t Address::port() const {
  if (size_ == 0) return 0;
  return ntohs(family() == AF_INET ? v4().sin_port : v6().sin6_port);
}

Address Address::with_port(std::uint16_t port) const {
  Address copy = *this;
  if (family() == AF_INET) {
    reinterpret_cast<sockaddr_in&>(copy.storage_).sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6&>(copy.storage_).sin6_port = htons(port);
  }
  return copy;
}

std::string Address::host() const {
  if (size_ == 0) return "(none)";
  char text[INET6_ADDRSTRLEN] = {};
  if (family() == AF_INET) return inet_ntop(AF_INET, &v4().sin_addr, text, sizeof text);
  std::string host = inet_ntop(AF_INET6, &v6().sin6_addr, text, sizeof text);
  if (const std::uint32_t scope = v6().sin6_scope_id; scope != 0) {
    char name[IF_NAMESIZE] = {};
    host += '%';
    host += if_indextoname(scope, name) != nullptr ? std::string(name) : std::to_string(scope);
  }
  return host;
}

std::string Address::text() const {
  return family() == AF_INET6 ? fmt::format("[{}]:{}", host(), port())
                              : fmt::format("{}:{}", host(), port());
}

std::span<const unsigned char> Address::raw() const {
  if (family() == AF_INET) return {reinterpret_cast<const unsigned char*>(&v4().sin_addr), 4};
  if (family() == AF_INET6) return {v6().sin6_addr.s6_addr, 16};
  return {};
}

bool Address::is_loopback() const {
  if (family() == AF_INET) return raw()[0] == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6().sin6_addr);
}

bool Address::is_link_local() const {
  if (family() == AF_INET) return raw()[0] == 169 && raw()[1] == 254;
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6().sin6_addr);
}

bool Address::is_wildcard() const {
  const auto bytes = raw();
  return std::all_of(bytes.begin(), bytes.end(), [](unsigned char byte) { return byte == 0; });
}

bool Address::same_host(const Address& other) const {
  if (family() != other.family() || !std::ranges::equal(raw(), other.raw())) return false;
  return family() != AF_INET6 || v6().sin6_scope_id == other.v6().sin6_scope_id;
}

bool operator==(const Address& a, const Address& b) {
  return a.same_host(b) && a.port() == b.port();
}

HostPort parse_host_port(std::string_view text) {
  const auto fail = [&](std::string_view why) -> HostPort {
    throw InvalidArgument(
        fmt::format("\"{}\" is not an address: {}; expected host:port, such as 10.0.0.1:29500, "
                    "node1:29500 or [fd00::1]:29500",
                    text.substr(0, kMaxHostBytes), why));
  };
  if (text.find("://") != std::string_view::npos)
    return fail("it is a URL; leave out everything before the host");
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return fail("it has no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":[]") != std::string_view::npos) {
    return fail("an IPv6 address needs brackets");
  }
  if (host.empty()) return fail("it has no host");
  if (host.size() > kMaxHostBytes || host.find('\0') != std::string_view::npos)
    return fail("the host is not a valid name");
  const auto port = parse_integer(digits).value_or(0);
  if (port < 1 || port > 65535 || digits.find_first_not_of("0123456789") != digits.npos)
    return fail("the port must be 1 to 65535");
  return {std::string(host), static_cast<std::uint16_t>(port)};
}

std::vector<Address> resolve(const std::string& host, std::uint16_t port) {
  if (const auto numeric = Address::parse_numeric(host, port)) return {*numeric};
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (failure != 0) {
    throw InvalidArgument(fmt::format("cannot find the address of \"{}\": {}; check the name",
                                      host.substr(0, kMaxHostBytes), gai_strerror(failure)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    const auto address = Address::from(entry->ai_addr, entry->ai_addrlen);
    if (!address) continue;
    const Address ported = address->with_port(port);
    if (std::find(addresses.begin(), addresses.end(), ported) == addresses.end())
      addresses.push_back(ported);
  }
  if (addresses.empty())
    throw InvalidArgument(fmt::format("\"{}\" has neither an IPv4 nor an IPv6 address", host));
  return addresses;
}

}  // namespace mccl::transport::tcp
