#include "rendezvous/cabling/trunk.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "mccl/error.h"

namespace mccl::rendezvous {
namespace {

using nlohmann::json;

/// Enough for the cables of a full mesh of 512 ranks.
constexpr std::size_t kMostNewsBytes = std::size_t{1} << 24;
constexpr std::size_t kMostCables = std::size_t{1} << 17;
/// The message, its list of cables, and a cable.
constexpr int kMostDepth = 3;
constexpr std::size_t kMostAddressBytes = 64;
constexpr std::size_t kMostWhyBytes = 255;

[[noreturn]] void refuse() { throw CorruptionError("its message about the cables is malformed"); }

/// Called by the parser for each part of the text, so that a peer cannot make it hold much more
/// memory than the cables of a large job need.
bool is_within_limits(int depth, json::parse_event_t event, json& /*parsed*/) {
  const bool opens =
      event == json::parse_event_t::array_start || event == json::parse_event_t::object_start;
  if (opens && depth >= kMostDepth) refuse();
  return true;
}

template <typename T>
T number(const json& value, T most) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(most))
    refuse();
  return value.get<T>();
}

/// Returns a text of characters from `first` to the last printable one of ASCII.
std::string text(const json& value, std::size_t most_bytes, char first) {
  auto found = value.get<std::string>();
  const auto is_allowed = [first](char c) { return c >= first && c < 127; };
  if (found.size() > most_bytes || !std::ranges::all_of(found, is_allowed)) refuse();
  return found;
}

Cable cable_between(int self, const std::string& here, int peer, const std::string& there) {
  if (self < peer) return {.a = self, .b = peer, .at_a = here, .at_b = there};
  return {.a = peer, .b = self, .at_a = there, .at_b = here};
}

}  // namespace

Bytes encode(const CableNews& news) {
  const Sighting& sighting = news.sighting;
  json cables = json::array();
  for (const Cable& cable : sighting.cables)
    cables.push_back({cable.a, cable.b, cable.at_a, cable.at_b});
  const json body = {{"kind", static_cast<int>(news.kind)},
                     {"rank", sighting.rank},
                     {"version", sighting.version},
                     {"settled", sighting.settled},
                     {"port", sighting.port},
                     {"cables", std::move(cables)},
                     {"ports", news.ports},
                     {"why", news.why.substr(0, kMostWhyBytes)}};
  const std::string text = body.dump(-1, ' ', true, json::error_handler_t::replace);
  Bytes whole;
  whole.reserve(kNewsHeaderBytes + text.size());
  append(whole, static_cast<std::uint32_t>(text.size()));
  append(whole, bytes_of(text));
  return whole;
}

std::size_t news_bytes(std::span<const std::byte> header) {
  const std::size_t bytes = WireReader(header).number<std::uint32_t>();
  if (bytes == 0 || bytes > kMostNewsBytes) refuse();
  return bytes;
}

CableNews decode_news(std::span<const std::byte> bytes, int size) {
  const int last_rank = size - 1;
  constexpr auto kMostPort = std::numeric_limits<std::uint16_t>::max();
  CableNews news;
  Sighting& sighting = news.sighting;
  // The parser takes a null byte for the end of the text.
  if (std::ranges::find(bytes, std::byte{0}) != bytes.end()) refuse();
  try {
    const json body = json::parse(text_of(bytes), is_within_limits);
    const int kind = number(body.at("kind"), static_cast<int>(CableNews::Kind::death));
    news.kind = static_cast<CableNews::Kind>(kind);
    sighting.rank = number(body.at("rank"), last_rank);
    sighting.version = number(body.at("version"), std::numeric_limits<std::uint32_t>::max());
    sighting.settled = body.at("settled").get<bool>();
    sighting.port = number(body.at("port"), kMostPort);
    if (body.at("cables").size() > kMostCables) refuse();
    for (const json& each : body.at("cables")) {
      sighting.cables.push_back({.a = number(each.at(0), last_rank),
                                 .b = number(each.at(1), last_rank),
                                 .at_a = text(each.at(2), kMostAddressBytes, '!'),
                                 .at_b = text(each.at(3), kMostAddressBytes, '!')});
    }
    for (const json& port : body.at("ports")) news.ports.push_back(number(port, kMostPort));
    news.why = text(body.at("why"), kMostWhyBytes, ' ');
  } catch (const json::exception&) {
    refuse();
  }
  for (const Cable& cable : sighting.cables) {
    const bool is_own = cable.a == sighting.rank || cable.b == sighting.rank;
    if (cable.a >= cable.b || (news.kind == CableNews::Kind::sighting && !is_own)) refuse();
  }
  if (news.kind == CableNews::Kind::decision && std::ssize(news.ports) != size) refuse();
  return news;
}

std::string bare_host(const transport::tcp::Address& address) {
  const std::string host = address.host();
  return host.substr(0, host.find('%'));
}

Trunk::Trunk(transport::tcp::Socket socket, int self, int peer, int size, Clock::time_point now)
    : stream_(std::move(socket)),
      peer_(peer),
      size_(size),
      here_(stream_.socket().local()),
      there_(stream_.socket().remote()),
      cable_(cable_between(self, bare_host(here_), peer, bare_host(there_))),
      heard_at_(now) {
  transport::tcp::tune_stream(stream_.socket());
}

void Trunk::tell_once(const Sighting& sighting) {
  const auto [told, is_first] = told_.emplace(sighting.rank, sighting.version);
  if (!is_first && told->second >= sighting.version) return;
  told->second = sighting.version;
  tell({CableNews::Kind::sighting, sighting});
}

bool Trunk::advance(Clock::time_point now, std::vector<CableNews>& news) {
  if (!stream_.flush()) return false;
  const std::size_t before = input_.size();
  const bool open = stream_.receive(input_, kMostNewsBytes + kNewsHeaderBytes);
  if (input_.size() != before) heard_at_ = now;
  std::size_t at = 0;
  while (input_.size() - at >= kNewsHeaderBytes) {
    const std::span<const std::byte> rest = std::span(input_).subspan(at);
    const std::size_t bytes = news_bytes(rest);
    if (rest.size() < kNewsHeaderBytes + bytes) break;
    news.push_back(decode_news(rest.subspan(kNewsHeaderBytes, bytes), size_));
    at += kNewsHeaderBytes + bytes;
  }
  input_.erase(input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(at));
  return open;
}

}  // namespace mccl::rendezvous
