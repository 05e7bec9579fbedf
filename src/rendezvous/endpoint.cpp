#include "rendezvous/endpoint.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "mccl/error.h"

namespace mccl::rendezvous {

namespace {

constexpr std::string_view kTitle = "mccl endpoint 1";
constexpr std::size_t kMaxAddresses = 64;
constexpr std::size_t kMaxFieldBytes = 256;
constexpr std::size_t kMaxTextBytes = 32 * 1024;

bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= kMaxFieldBytes &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isgraph(c) != 0; });
}

/// True if the text is a numeric address. A scope id (after '%') has a meaning only on the other
/// host, so its value is not checked.
bool is_numeric_address(std::string_view text) {
  if (!is_word(text)) return false;
  const std::size_t percent = text.find('%');
  const std::string number(text.substr(0, percent));
  unsigned char raw[16];
  if (inet_pton(AF_INET6, number.c_str(), raw) == 1) return percent + 1 != text.size();
  return percent == std::string_view::npos && inet_pton(AF_INET, number.c_str(), raw) == 1;
}

/// Returns the first fault of an endpoint; empty if there is none.
std::string fault_of(const Endpoint& endpoint) {
  if (endpoint.rank < 0) return fmt::format("rank {} is negative", endpoint.rank);
  if (!is_word(endpoint.host)) return "the host identity is not a printable word";
  if (endpoint.port == 0) return "port 0";
  if (endpoint.addresses.empty() || endpoint.addresses.size() > kMaxAddresses)
    return fmt::format("{} addresses, expected 1 to {}", endpoint.addresses.size(), kMaxAddresses);
  for (const std::string& address : endpoint.addresses) {
    if (!is_numeric_address(address))
      return fmt::format("\"{}\" is not a numeric address", address.substr(0, kMaxFieldBytes));
  }
  return {};
}

[[noreturn]] void refuse(const std::string& why) {
  throw InvalidArgument(
      fmt::format("the store holds an invalid endpoint: {}; is the store shared with another "
                  "program, or does a rank run another version of MCCL?",
                  why));
}

/// Removes the line "name=value" from `text` and returns the value.
std::string_view take_field(std::string_view& text, std::string_view name) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  if (end == std::string_view::npos || line.size() <= name.size() ||
      line.substr(0, name.size()) != name || line[name.size()] != '=') {
    refuse(fmt::format("expected a line \"{}=…\"", name));
  }
  text.remove_prefix(end + 1);
  return line.substr(name.size() + 1);
}

template <typename T>
T number_of(std::string_view digits) {
  T value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, failure] = std::from_chars(digits.data(), end, value);
  if (failure != std::errc() || stop != end)
    refuse(fmt::format("\"{}\" is not a number in range", digits.substr(0, 32)));
  return value;
}

}  // namespace

std::string serialise(const Endpoint& endpoint) {
  if (const std::string fault = fault_of(endpoint); !fault.empty())
    throw InvalidArgument("cannot publish an endpoint: " + fault);
  std::string text =
      fmt::format("{}\nrank={}\nhost={}\nport={}\nlisted={}\n", kTitle, endpoint.rank,
                  endpoint.host, endpoint.port, endpoint.listed ? 1 : 0);
  for (const std::string& address : endpoint.addresses) text += "address=" + address + "\n";
  return text;
}

Endpoint parse_endpoint(std::string_view text) {
  if (text.size() > kMaxTextBytes) refuse(fmt::format("it has {} bytes", text.size()));
  if (text.substr(0, kTitle.size() + 1) != std::string(kTitle) + "\n")
    refuse(fmt::format("it does not begin with \"{}\"", kTitle));
  std::string_view rest = text.substr(kTitle.size() + 1);
  Endpoint endpoint;
  endpoint.rank = number_of<int>(take_field(rest, "rank"));
  endpoint.host = take_field(rest, "host");
  endpoint.port = number_of<std::uint16_t>(take_field(rest, "port"));
  endpoint.listed = number_of<int>(take_field(rest, "listed")) != 0;
  while (!rest.empty() && endpoint.addresses.size() <= kMaxAddresses)
    endpoint.addresses.emplace_back(take_field(rest, "address"));
  if (const std::string fault = fault_of(endpoint); !fault.empty()) refuse(fault);
  // Numbers have several spellings; only the one that serialise writes is accepted.
  if (serialise(endpoint) != text) refuse("it is not in the canonical form of an endpoint");
  return endpoint;
}

}  // namespace mccl::rendezvous
