#include "rendezvous/connections/endpoint.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "mccl/error.h"

namespace mccl::rendezvous {

namespace {

using nlohmann::json;

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

}  // namespace

std::string serialise(const Endpoint& endpoint) {
  if (const std::string fault = fault_of(endpoint); !fault.empty())
    throw InvalidArgument("cannot publish an endpoint: " + fault);
  return json{{"rank", endpoint.rank},
              {"host", endpoint.host},
              {"port", endpoint.port},
              {"listed", endpoint.listed},
              {"addresses", endpoint.addresses}}
      .dump();
}

Endpoint parse_endpoint(std::string_view text) {
  if (text.size() > kMaxTextBytes) refuse(fmt::format("it has {} bytes", text.size()));
  Endpoint endpoint;
  try {
    const json fields = json::parse(text);
    endpoint = {fields.at("rank"), fields.at("host"), fields.at("port"), fields.at("addresses"),
                fields.at("listed")};
  } catch (const json::exception&) {
    refuse("it is not the JSON of an endpoint");
  }
  if (const std::string fault = fault_of(endpoint); !fault.empty()) refuse(fault);
  // Numbers have several spellings, and may be out of range; only what serialise() writes is taken.
  if (serialise(endpoint) != text) refuse("it is not in the canonical form of an endpoint");
  return endpoint;
}

}  // namespace mccl::rendezvous
