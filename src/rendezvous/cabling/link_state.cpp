#include "rendezvous/cabling/link_state.h"

#include <functional>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "mccl/error.h"

namespace mccl::rendezvous {
namespace {

/// Returns a largest subset of the cables of one pair of ranks in which no two cables share an
/// address (a maximum matching, by augmenting paths). If both hosts have several addresses in one
/// network, each address of one host reaches each address of the other, which looks like more
/// cables than exist.
std::vector<Cable> without_shared_ends(const std::vector<Cable>& pair) {
  // Key: an address of the higher rank. Value: the cable chosen for that address.
  std::map<std::string, Cable> chosen;
  std::set<std::string> tried;
  const std::function<bool(const std::string&)> take = [&](const std::string& at_a) {
    return std::ranges::any_of(pair, [&](const Cable& cable) {
      if (cable.at_a != at_a || !tried.insert(cable.at_b).second) return false;
      const auto holder = chosen.find(cable.at_b);
      if (holder != chosen.end() && !take(holder->second.at_a)) return false;
      chosen.insert_or_assign(cable.at_b, cable);
      return true;
    });
  };
  std::set<std::string> ends;
  for (const Cable& cable : pair) {
    tried.clear();
    if (ends.insert(cable.at_a).second) take(cable.at_a);
  }
  std::vector<Cable> kept;
  kept.reserve(chosen.size());
  for (auto& [at_b, cable] : chosen) kept.push_back(std::move(cable));
  return kept;
}

using nlohmann::json;

/// Maximum size of one message in bytes, and maximum number of cables in it. Both suffice for a
/// full mesh of 512 ranks.
constexpr std::size_t kMostNewsBytes = std::size_t{1} << 24;
constexpr std::size_t kMostCables = std::size_t{1} << 17;
/// Maximum nesting of the JSON: the message is an object with a list of cables, and each cable is a
/// list.
constexpr int kMostDepth = 3;
constexpr std::size_t kMostAddressBytes = 64;
constexpr std::size_t kMostWhyBytes = 255;

[[noreturn]] void refuse() { throw CorruptionError("its message about the cables is malformed"); }

/// Called by the parser for each part of the text; returns true to keep the part. Throws if values
/// are nested too deeply, so that a peer cannot make the parser use much more memory than the
/// cables of a large job need.
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

/// Returns the text of a JSON string. Throws CorruptionError if the text has more than
/// `most_bytes`, or a character outside the range from `first` to '~', the last printable character
/// of ASCII.
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

LinkState::LinkState(int rank, int size, std::uint16_t port)
    : rank_(rank),
      size_(size),
      known_(static_cast<std::size_t>(size)),
      joined_(known_.size(), std::vector<bool>(known_.size(), false)) {
  Sighting& own = known_[static_cast<std::size_t>(rank)].emplace();
  own.rank = rank;
  own.port = port;
}

bool LinkState::see(std::vector<Cable> cables, bool settled) {
  Sighting& own = *known_[static_cast<std::size_t>(rank_)];
  if (own.cables == cables && own.settled == settled) return false;
  own.cables = std::move(cables);
  own.settled = settled;
  ++own.version;
  note_joints(rank_);
  return true;
}

bool LinkState::hear(const CableNews& news) {
  switch (news.kind) {
    case CableNews::Kind::alive:
      return false;
    case CableNews::Kind::decision: {
      Cabling cabling(size_, news.sighting.cables);
      if (decided_ && decided_->cables() != cabling.cables())
        throw CorruptionError("its cables differ from those that the other ranks agreed on");
      if (cabling.parts().size() != 1)
        throw CorruptionError(
            "it announces an agreed set of cables that does not connect all ranks");
      const bool is_new = !decided_;
      decided_ = std::move(cabling);
      ports_ = news.ports;
      return is_new;
    }
    case CableNews::Kind::cut:
      return hear_of_cut(news);
    case CableNews::Kind::fault:
      if (decided_ || !fault_.empty()) return false;
      fault_ = news.why;
      return true;
    case CableNews::Kind::death:
      if (!death_.empty()) return false;
      death_ = news.why;
      return true;
    case CableNews::Kind::ended:
      return decided_ && ended_.insert(news.sighting.rank).second;
    case CableNews::Kind::sighting:
      break;
  }
  if (news.sighting.rank == rank_) return hear_of_itself(news.sighting);
  auto& known = known_[static_cast<std::size_t>(news.sighting.rank)];
  if (known && known->version >= news.sighting.version) return false;
  known = news.sighting;
  note_joints(news.sighting.rank);
  return true;
}

/// Handles a report of this rank's own cables that a neighbour has passed on. Returns false if the
/// report is an echo: older than own() or equal to it. Otherwise, an earlier process with this rank
/// made the report. In that case, raises the version of own() above the reported version and
/// returns true, so that own() is sent to all ranks.
bool LinkState::hear_of_itself(const Sighting& reported) {
  Sighting& own = *known_[static_cast<std::size_t>(rank_)];
  const bool is_echo =
      reported.version < own.version || (reported.version == own.version && reported == own);
  if (!is_echo) own.version = reported.version + 1;
  return !is_echo;
}

/// Records cut cables. Ignores cables outside the agreed cabling.
bool LinkState::hear_of_cut(const CableNews& news) {
  if (!decided_) return false;
  bool is_new = false;
  for (const Cable& cable : news.sighting.cables) {
    const auto& known = decided_->cables();
    if (std::ranges::find(known, cable) == known.end() || is_cut(cable)) continue;
    cut_.push_back(cable);
    new_cut_.push_back({cable, news.why});
    is_new = true;
  }
  return is_new;
}

CableNews LinkState::decision() const {
  CableNews news{CableNews::Kind::decision, {}};
  news.sighting.cables = decided_->cables();
  news.ports = ports_;
  return news;
}

void LinkState::note_joints(int rank) {
  std::vector<bool>& joined = joined_[static_cast<std::size_t>(rank)];
  joined.assign(static_cast<std::size_t>(size_), false);
  for (const Cable& cable : known_[static_cast<std::size_t>(rank)]->cables)
    joined[static_cast<std::size_t>(cable.a == rank ? cable.b : cable.a)] = true;
}

bool LinkState::all_settled() const {
  return std::ranges::all_of(known_, [](const auto& known) { return known && known->settled; });
}

bool LinkState::is_seen_by(int rank, const Cable& cable) const {
  const Sighting* const sighting = sighting_of(rank);
  return sighting && std::ranges::find(sighting->cables, cable) != sighting->cables.end();
}

bool LinkState::both_ends_see_all() const {
  return std::ranges::all_of(known_, [this](const auto& known) {
    return !known || std::ranges::all_of(
                         known->cables, [&](const Cable& cable) { return is_seen_by_both(cable); });
  });
}

bool LinkState::decide() {
  std::map<std::pair<int, int>, std::vector<Cable>> pairs;
  for (const auto& lower : known_) {
    for (const Cable& cable : lower->cables) {
      if (cable.a == lower->rank && is_seen_by_both(cable))
        pairs[{cable.a, cable.b}].push_back(cable);
    }
  }
  std::vector<Cable> agreed;
  for (const auto& [ranks, pair] : pairs)
    std::ranges::move(without_shared_ends(pair), std::back_inserter(agreed));
  Cabling cabling(size_, std::move(agreed));
  if (cabling.parts().size() != 1) return false;
  decided_ = std::move(cabling);
  ports_.clear();
  for (const auto& known : known_) ports_.push_back(known->port);
  return true;
}

std::vector<int> LinkState::unheard() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank)
    if (!sighting_of(rank)) ranks.push_back(rank);
  return ranks;
}

std::vector<int> LinkState::unsettled() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    if (const Sighting* const known = sighting_of(rank); known && !known->settled)
      ranks.push_back(rank);
  }
  return ranks;
}

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
  // Text with a null byte is refused, because the parser would take that byte for the end of the
  // text.
  if (std::ranges::find(bytes, std::byte{0}) != bytes.end()) refuse();
  try {
    const json body = json::parse(text_of(bytes), is_within_limits);
    const int kind = number(body.at("kind"), static_cast<int>(CableNews::Kind::ended));
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

std::string bare_host(const Address& address) {
  const std::string host = address.host();
  return host.substr(0, host.find('%'));
}

Trunk::Trunk(Socket socket, std::uint64_t number, int self, int peer, int size,
             Clock::time_point now)
    : stream_(std::move(socket)),
      number_(number),
      peer_(peer),
      size_(size),
      here_(stream_.socket().local()),
      there_(stream_.socket().remote()),
      cable_(cable_between(self, bare_host(here_), peer, bare_host(there_))),
      heard_at_(now) {
  transport::tcp::tune_stream(stream_.socket());
}

void Trunk::send_once(const Sighting& sighting) {
  const auto [sent, is_first] = sent_versions_.emplace(sighting.rank, sighting.version);
  if (!is_first && sent->second >= sighting.version) return;
  sent->second = sighting.version;
  send({CableNews::Kind::sighting, sighting});
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
