#include "cli/kit/host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/value_text.h"
#include "cluster/text.h"
#include "mccl/error.h"

namespace mccl::cli {
namespace {

constexpr std::size_t kLongestName = 255;

/// True if no shell or ssh would interpret a character. `also` holds the allowed punctuation.
bool is_word(std::string_view text, std::string_view also) {
  return !text.empty() && text.size() <= kLongestName && text.front() != '-' &&
         std::ranges::all_of(text, [&](unsigned char c) {
           return std::isalnum(c) != 0 || c >= 0x80 || also.find(static_cast<char>(c)) != also.npos;
         });
}

bool is_ipv6(std::string_view text) {
  return text.find(':') != text.npos && is_ip_address(text.substr(0, text.find('%')));
}

/// True if the number in "host:number" is probably meant as a count of slots: ssh servers rarely
/// listen at such low ports, except 22 and ports that firewalls let through.
bool is_more_likely_slots(std::int64_t port) {
  constexpr std::int64_t kMostLikely = 256;
  return port < kMostLikely && port != 22 && port != 53 && port != 80 && port != 222;
}

[[noreturn]] void refuse_slots(std::string_view where, std::string_view text, std::string_view name,
                               std::int64_t number) {
  throw InvalidArgument(fmt::format(
      "{0}: {1}: expected the port of an ssh server after the colon; found {2}. For {2} ranks on "
      "each machine give -n {2}; for different numbers, use a hostfile: {{\"ssh\": \"{3}\", "
      "\"slots\": {2}}}. (If an ssh server does listen at that port, set Port in ~/.ssh/config.)",
      where, in_quotes(text), number, printable(name)));
}

[[noreturn]] void refuse(std::string_view where, std::string_view text) {
  throw InvalidArgument(
      fmt::format("{}: {} is not a host; expected [user@]name, [user@]address, or either with "
                  ":port; write an IPv6 address with a port in brackets",
                  where, in_quotes(text)));
}

}  // namespace

Host parse_host(std::string_view where, std::string_view text) {
  Host host;
  std::string_view rest = text;
  if (const std::size_t at = rest.rfind('@'); at != rest.npos) {
    host.user = rest.substr(0, at);
    rest.remove_prefix(at + 1);
    if (!is_word(host.user, "._-+\\@")) refuse(where, text);
  }
  std::string_view port;
  if (rest.starts_with('[')) {
    const std::size_t close = rest.find(']');
    if (close == rest.npos) refuse(where, text);
    host.name = rest.substr(1, close - 1);
    port = rest.substr(close + 1);
    if (!is_ipv6(host.name)) refuse(where, text);
  } else if (const std::size_t colon = rest.find(':'); !is_ipv6(rest) && colon != rest.npos) {
    host.name = rest.substr(0, colon);
    port = rest.substr(colon);
  } else {
    host.name = rest;
  }
  if (!is_word(host.name, is_ipv6(host.name) ? ":.%_-" : "._-")) refuse(where, text);
  if (port.empty()) return host;
  const auto number = parse_integer(port.substr(1));
  if (port.front() != ':' || !number || *number < 1 || *number > 65535) refuse(where, text);
  if (is_more_likely_slots(*number)) refuse_slots(where, text, host.name, *number);
  host.port = static_cast<int>(*number);
  return host;
}

std::vector<Host> parse_hosts(std::string_view where, std::string_view text) {
  std::vector<Host> hosts;
  for (const std::string_view part : cluster::split(text, ',')) {
    hosts.push_back(parse_host(where, part));
    if (hosts.size() > kMostHosts)
      throw InvalidArgument(fmt::format("{}: more than {} hosts", where, kMostHosts));
  }
  return hosts;
}

std::string text_of(const Host& host) {
  const std::string user = host.user.empty() ? "" : host.user + "@";
  if (host.port == 0) return user + host.name;
  if (is_ipv6(host.name)) return fmt::format("{}[{}]:{}", user, host.name, host.port);
  return fmt::format("{}{}:{}", user, host.name, host.port);
}

std::string name_of_this_machine() {
  std::array<char, kLongestName + 1> name = {};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool is_here(const Host& host) {
  if (!host.user.empty() || host.port != 0) return false;
  for (const std::string_view name : {"127.0.0.1", "::1", "localhost"})
    if (host.name == name) return true;
  const std::string own = name_of_this_machine();
  return host.name == own || host.name == own.substr(0, own.find('.'));
}

std::pair<std::string, std::string> parse_variable(std::string_view where, std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const bool good = equals != text.npos && !name.empty() &&
                    std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
                    std::ranges::all_of(name, [](unsigned char c) {
                      return c < 0x80 && (std::isalnum(c) != 0 || c == '_');
                    });
  if (!good) {
    throw InvalidArgument(
        fmt::format("{}: {} does not set a variable; expected NAME=VALUE with letters, "
                    "digits and _ in NAME",
                    where, in_quotes(text)));
  }
  return {std::string(name), std::string(text.substr(equals + 1))};
}

}  // namespace mccl::cli
