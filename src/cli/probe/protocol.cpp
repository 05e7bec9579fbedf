#include "cli/probe/protocol.h"

#include <fmt/format.h>

#include "base/value_text.h"
#include "cli/kit/fields.h"
#include "mccl/error.h"

namespace mccl::cli::probe {
namespace {

constexpr double kLongest = 10;
constexpr int kMostPatience = 3600;
constexpr std::size_t kShortestKey = 16;

Address address_of(const std::string& text, double port) {
  const auto address = Address::parse_numeric(text, static_cast<std::uint16_t>(port));
  if (!address) throw InvalidArgument(fmt::format("{} is not an address", in_quotes(text)));
  return *address;
}

Target target_of(const Fields& request) {
  Target target;
  target.id = request.number("id", 0, 1e9);
  target.to = address_of(request.raw_text("to"), request.number("port", 1, 65535));
  if (request.has("from")) target.source = address_of(request.raw_text("from"), 0);
  return target;
}

}  // namespace

ProbeRequest parse_request(const nlohmann::json& json) {
  const Fields fields(json, "a request to mccl probe");
  ProbeRequest request;
  const std::string& kind = request.kind = fields.raw_text("do");
  if (kind == "tell") {
    request.python = fields.raw_text("python");
    request.patience =
        std::chrono::seconds(static_cast<int>(fields.number("patience", 1, kMostPatience)));
  } else if (kind == "listen") {
    request.key = fields.raw_text("key");
    if (request.key.size() < kShortestKey) fields.refuse("key");
  } else if (kind == "call") {
    request.name = fields.number("name", 0, 1e9);
  } else if (kind == "dial" || kind == "packet" || kind == "time") {
    if (kind == "packet") request.bytes = static_cast<int>(fields.number("bytes", 0, 65535));
    if (kind == "time") request.seconds = fields.number("seconds", 0, kLongest);
    request.target = target_of(fields);
  } else {
    throw InvalidArgument(fmt::format("mccl probe does not know the request {}", in_quotes(kind)));
  }
  return request;
}

}  // namespace mccl::cli::probe
