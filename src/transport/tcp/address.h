// Socket addresses: IPv4 and IPv6, with scope ids, as text and as sockaddr structures.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::transport::tcp {

/// An IPv4 or IPv6 address with a port. IPv4-mapped IPv6 addresses are converted to IPv4.
class Address {
 public:
  Address() = default;

  /// Returns nullopt if the family is neither IPv4 nor IPv6, or if `length` is too short for it.
  static std::optional<Address> from(const sockaddr* raw, socklen_t length);
  /// Parses "10.0.0.1", "fd00::1" or "fe80::1%eth0". Returns nullopt for any other text, including
  /// host names.
  static std::optional<Address> parse_numeric(std::string_view host, std::uint16_t port);
  /// Returns the wildcard address [::] or 0.0.0.0.
  static Address wildcard(int family, std::uint16_t port);

  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }
  int family() const { return storage_.ss_family; }
  std::uint16_t port() const;
  Address with_port(std::uint16_t port) const;

  /// The address without the port: "10.0.0.1", "fe80::1%eth0".
  std::string host() const;
  /// The address with the port: "10.0.0.1:29600", "[fd00::1]:29600".
  std::string text() const;

  bool is_loopback() const;
  bool is_link_local() const;
  bool is_wildcard() const;

  /// The bytes of the address itself, 4 or 16, in network order.
  std::span<const unsigned char> raw() const;

  friend bool operator==(const Address& a, const Address& b);
  /// True if the two addresses are equal apart from the port.
  bool same_host(const Address& other) const;

 private:
  const sockaddr_in& v4() const { return reinterpret_cast<const sockaddr_in&>(storage_); }
  const sockaddr_in6& v6() const { return reinterpret_cast<const sockaddr_in6&>(storage_); }

  sockaddr_storage storage_ = {};
  socklen_t size_ = 0;
};

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};

/// Parses texts such as "node1:80", "10.0.0.1:80" or "[fd00::1]:80". Throws InvalidArgument for any
/// text of another form.
HostPort parse_host_port(std::string_view text);

/// Returns the addresses of `host`, which is a numeric address or a host name, in the resolver's
/// order. Blocks while the resolver works. Throws InvalidArgument if there is no address; the
/// message contains `host`.
std::vector<Address> resolve(const std::string& host, std::uint16_t port);

}  // namespace mccl::transport::tcp
