#include "cli/probe/protocol.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::cli::probe {
namespace {

using nlohmann::json;

constexpr double kLongest = 10;
constexpr int kMostPatience = 3600;
constexpr std::size_t kShortestKey = 16;

[[noreturn]] void refuse(const char* key, const char* expected) {
  throw InvalidArgument(
      fmt::format("a request to mccl probe has no valid \"{}\"; expected {}", key, expected));
}

std::string text_in(const json& request, const char* key) {
  const auto found = request.find(key);
  if (found == request.end() || !found->is_string()) refuse(key, "text");
  return found->get<std::string>();
}

double number_in(const json& request, const char* key, double least, double most) {
  const auto found = request.find(key);
  if (found == request.end() || !found->is_number()) refuse(key, "a number");
  const auto value = found->get<double>();
  if (!(value >= least && value <= most)) refuse(key, "a number in the valid range");
  return value;
}

Address address_of(const std::string& text, double port) {
  const auto address = Address::parse_numeric(text, static_cast<std::uint16_t>(port));
  if (!address) throw InvalidArgument(fmt::format("{} is not an address", in_quotes(text)));
  return *address;
}

Target target_of(const json& request) {
  Target target;
  target.id = number_in(request, "id", 0, 1e9);
  target.to = address_of(text_in(request, "to"), number_in(request, "port", 1, 65535));
  if (request.contains("from")) target.source = address_of(text_in(request, "from"), 0);
  return target;
}

}  // namespace

ProbeRequest parse_request(const json& json) {
  if (!json.is_object()) throw InvalidArgument("a request to mccl probe is not a JSON object");
  ProbeRequest request;
  const std::string& kind = request.kind = text_in(json, "do");
  if (kind == "tell") {
    request.python = text_in(json, "python");
    request.patience =
        std::chrono::seconds(static_cast<int>(number_in(json, "patience", 1, kMostPatience)));
  } else if (kind == "listen") {
    request.key = text_in(json, "key");
    if (request.key.size() < kShortestKey) refuse("key", "text of at least 16 characters");
  } else if (kind == "call") {
    request.name = number_in(json, "name", 0, 1e9);
  } else if (kind == "dial" || kind == "packet" || kind == "time") {
    if (kind == "packet") request.bytes = static_cast<int>(number_in(json, "bytes", 0, 65535));
    if (kind == "time") request.seconds = number_in(json, "seconds", 0, kLongest);
    request.target = target_of(json);
  } else {
    throw InvalidArgument(fmt::format("mccl probe does not know the request {}", in_quotes(kind)));
  }
  return request;
}

}  // namespace mccl::cli::probe
