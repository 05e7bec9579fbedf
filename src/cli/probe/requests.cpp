#include "cli/probe/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::cli::probe {
namespace {

using nlohmann::json;
using Kind = ProbeRequest::Kind;

constexpr double kLongest = 10;
constexpr int kMostPatience = 3600;
constexpr std::size_t kShortestKey = 16;

constexpr std::pair<std::string_view, Kind> kKinds[] = {
    {"tell", Kind::tell}, {"listen", Kind::listen}, {"call", Kind::call},
    {"dial", Kind::dial}, {"packet", Kind::packet}, {"time", Kind::time},
};

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
  const std::string name = text_in(json, "do");
  const auto* const found =
      std::ranges::find(kKinds, name, &std::pair<std::string_view, Kind>::first);
  if (found == std::end(kKinds))
    throw InvalidArgument(fmt::format("mccl probe does not know the request {}", in_quotes(name)));
  ProbeRequest request;
  request.kind = found->second;
  switch (request.kind) {
    case Kind::tell:
      request.python = text_in(json, "python");
      request.patience =
          std::chrono::seconds(static_cast<int>(number_in(json, "patience", 1, kMostPatience)));
      return request;
    case Kind::listen:
      request.key = text_in(json, "key");
      if (request.key.size() < kShortestKey) refuse("key", "text of at least 16 characters");
      return request;
    case Kind::call:
      request.name = number_in(json, "name", 0, 1e9);
      return request;
    case Kind::packet:
      request.bytes = static_cast<int>(number_in(json, "bytes", 0, 65535));
      break;
    case Kind::time:
      request.seconds = number_in(json, "seconds", 0, kLongest);
      break;
    case Kind::dial:
      break;
  }
  request.target = target_of(json);
  return request;
}

}  // namespace mccl::cli::probe
