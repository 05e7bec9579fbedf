#include "rendezvous/cabling/link_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "mccl/error.h"

namespace mccl::rendezvous {
namespace {

/// Maximum number of cables in a message: enough for a full mesh of 512 ranks.
constexpr std::size_t kMostCables = std::size_t{1} << 17;
constexpr std::size_t kMostTextBytes = 64;
constexpr std::size_t kMostWhyBytes = 255;

void append_text(Bytes& to, const std::string& text) {
  append(to, static_cast<std::uint8_t>(text.size()));
  append(to, bytes_of(text));
}

/// Reads input that may be truncated or invalid, and throws CorruptionError if it is.
class CarefulReader {
 public:
  explicit CarefulReader(std::span<const std::byte> bytes) : left_(bytes.size()), reader_(bytes) {}

  template <std::unsigned_integral T>
  T number(T most) {
    need(sizeof(T));
    const T value = reader_.number<T>();
    if (value > most) refuse();
    return value;
  }

  std::string text() {
    const std::size_t bytes = number<std::uint8_t>(kMostTextBytes);
    need(bytes);
    std::string found(text_of(reader_.take(bytes)));
    if (!std::ranges::all_of(found, [](char c) { return c > ' ' && c < 127; })) refuse();
    return found;
  }

  std::string words() {
    const std::size_t bytes = number<std::uint8_t>(kMostWhyBytes);
    need(bytes);
    std::string found(text_of(reader_.take(bytes)));
    if (!std::ranges::all_of(found, [](char c) { return c >= ' ' && c < 127; })) refuse();
    return found;
  }

  void end() const {
    if (left_ != 0) refuse();
  }

  [[noreturn]] static void refuse() {
    throw CorruptionError("its message about the cables is malformed");
  }

 private:
  void need(std::size_t bytes) {
    if (bytes > left_) refuse();
    left_ -= bytes;
  }

  std::size_t left_;
  Reader reader_;
};

/// Selects a largest set of a pair's cables in which no two share an address, by augmenting paths.
/// If a network joins two hosts with several addresses each, every address reaches every other,
/// although a host has only as many cables as addresses.
class Matching {
 public:
  explicit Matching(const std::vector<Cable>& pair) : pair_(pair) {}

  std::vector<Cable> largest() {
    for (const Cable& cable : pair_) {
      if (place_of(cable.at_a)) continue;
      std::set<std::string> tried;
      take(cable.at_a, tried);
    }
    std::vector<Cable> taken;
    for (const auto& [at_b, index] : by_end_) taken.push_back(pair_[index]);
    return taken;
  }

 private:
  bool place_of(const std::string& at_a) const {
    return std::ranges::any_of(by_end_,
                               [&](const auto& each) { return pair_[each.second].at_a == at_a; });
  }

  bool take(const std::string& at_a, std::set<std::string>& tried) {
    for (std::size_t i = 0; i < pair_.size(); ++i) {
      if (pair_[i].at_a != at_a || !tried.insert(pair_[i].at_b).second) continue;
      const auto holder = by_end_.find(pair_[i].at_b);
      if (holder != by_end_.end() && !take(pair_[holder->second].at_a, tried)) continue;
      by_end_[pair_[i].at_b] = i;
      return true;
    }
    return false;
  }

  const std::vector<Cable>& pair_;
  std::map<std::string, std::size_t>
      by_end_;  ///< Cable chosen for each address of the higher rank.
};

std::vector<Cable> without_shared_ends(const std::vector<Cable>& cables) {
  std::map<std::pair<int, int>, std::vector<Cable>> pairs;
  for (const Cable& cable : cables) pairs[{cable.a, cable.b}].push_back(cable);
  std::vector<Cable> kept;
  for (const auto& [ranks, pair] : pairs) {
    for (Cable& cable : Matching(pair).largest()) kept.push_back(std::move(cable));
  }
  return kept;
}

bool has_reason(CableNews::Kind kind) {
  return kind == CableNews::Kind::cut || kind == CableNews::Kind::fault ||
         kind == CableNews::Kind::death;
}

std::uint32_t last_rank(int size) { return static_cast<std::uint32_t>(size - 1); }

}  // namespace

Bytes encode(const CableNews& news) {
  Bytes body;
  const Sighting& sighting = news.sighting;
  append(body, static_cast<std::uint8_t>(news.kind));
  if (news.kind != CableNews::Kind::alive) {
    append(body, static_cast<std::uint32_t>(sighting.rank));
    append(body, sighting.version);
    append(body, static_cast<std::uint8_t>(sighting.settled ? 1 : 0));
    append(body, sighting.port);
    append(body, static_cast<std::uint32_t>(sighting.cables.size()));
    for (const Cable& cable : sighting.cables) {
      append(body, static_cast<std::uint32_t>(cable.a));
      append(body, static_cast<std::uint32_t>(cable.b));
      append_text(body, cable.at_a);
      append_text(body, cable.at_b);
    }
  }
  if (news.kind == CableNews::Kind::decision) {
    append(body, static_cast<std::uint32_t>(news.ports.size()));
    for (const std::uint16_t port : news.ports) append(body, port);
  }
  if (has_reason(news.kind)) append_text(body, news.why.substr(0, kMostWhyBytes));
  Bytes whole;
  whole.reserve(kNewsHeaderBytes + body.size());
  append(whole, static_cast<std::uint32_t>(body.size()));
  append(whole, std::span<const std::byte>(body));
  return whole;
}

std::size_t news_bytes(std::span<const std::byte> header) {
  const std::size_t bytes = Reader(header).number<std::uint32_t>();
  if (bytes == 0 || bytes > kMostNewsBytes) CarefulReader::refuse();
  return bytes;
}

CableNews decode_news(std::span<const std::byte> bytes, int size) {
  CarefulReader reader(bytes);
  CableNews news;
  news.kind = static_cast<CableNews::Kind>(
      reader.number(static_cast<std::uint8_t>(CableNews::Kind::death)));
  if (news.kind != CableNews::Kind::alive) {
    const bool is_sighting = news.kind == CableNews::Kind::sighting;
    Sighting& sighting = news.sighting;
    sighting.rank = static_cast<int>(reader.number(last_rank(size)));
    sighting.version = reader.number<std::uint32_t>(~std::uint32_t{0});
    sighting.settled = reader.number<std::uint8_t>(1) != 0;
    sighting.port = reader.number<std::uint16_t>(65535);
    const auto count = reader.number<std::uint32_t>(kMostCables);
    for (std::uint32_t i = 0; i < count; ++i) {
      Cable& cable = sighting.cables.emplace_back();
      cable.a = static_cast<int>(reader.number(last_rank(size)));
      cable.b = static_cast<int>(reader.number(last_rank(size)));
      cable.at_a = reader.text();
      cable.at_b = reader.text();
      if (cable.a >= cable.b) CarefulReader::refuse();
      if (is_sighting && cable.a != sighting.rank && cable.b != sighting.rank)
        CarefulReader::refuse();
    }
  }
  if (news.kind == CableNews::Kind::decision) {
    if (reader.number<std::uint32_t>(last_rank(size) + 1) != last_rank(size) + 1)
      CarefulReader::refuse();
    for (int rank = 0; rank < size; ++rank)
      news.ports.push_back(reader.number<std::uint16_t>(65535));
  }
  if (has_reason(news.kind)) news.why = reader.words();
  reader.end();
  return news;
}

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
        throw CorruptionError("the cables that it says are agreed on do not connect all ranks");
      const bool is_new = !decided_;
      decided_ = std::move(cabling);
      ports_ = news.ports;
      return is_new;
    }
    case CableNews::Kind::cut:
      return hear_of_cut(news);
    case CableNews::Kind::fault: {
      const bool is_new = !decided_ && fault_.empty();
      if (is_new) fault_ = news.why;
      return is_new;
    }
    case CableNews::Kind::death: {
      const bool is_new = death_.empty();
      if (is_new) death_ = news.why;
      return is_new;
    }
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

/// Handles a sighting of this rank that another rank has sent. It is an echo, or it is from an
/// earlier process with this rank. In the latter case the other ranks consider it newer than this
/// process's own. The version of own() is then raised above it, and true is returned so that own()
/// is sent to all.
bool LinkState::hear_of_itself(const Sighting& told) {
  Sighting& own = *known_[static_cast<std::size_t>(rank_)];
  const bool is_echo = told.version < own.version || (told.version == own.version && told == own);
  if (!is_echo) own.version = told.version + 1;
  return !is_echo;
}

/// Ignores cables outside the agreed cabling.
bool LinkState::hear_of_cut(const CableNews& news) {
  if (!decided_) return false;
  bool is_new = false;
  for (const Cable& cable : news.sighting.cables) {
    const auto& known = decided_->cables();
    if (std::ranges::find(known, cable) == known.end() ||
        std::ranges::find(cut_, cable) != cut_.end()) {
      continue;
    }
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

bool LinkState::sees(int rank, const Cable& cable) const {
  const Sighting* const sighting = sighting_of(rank);
  return sighting && std::ranges::find(sighting->cables, cable) != sighting->cables.end();
}

bool LinkState::both_ends_see_all() const {
  return std::ranges::all_of(known_, [this](const auto& known) {
    return !known || std::ranges::all_of(known->cables, [&](const Cable& cable) {
      return sees(cable.a, cable) && sees(cable.b, cable);
    });
  });
}

bool LinkState::decide() {
  std::vector<Cable> agreed;
  for (const auto& lower : known_) {
    for (const Cable& cable : lower->cables) {
      if (cable.a == lower->rank && sees(cable.b, cable)) agreed.push_back(cable);
    }
  }
  Cabling cabling(size_, without_shared_ends(agreed));
  if (cabling.parts().size() != 1) return false;
  decided_ = std::move(cabling);
  ports_.clear();
  for (const auto& known : known_) ports_.push_back(known->port);
  return true;
}

std::vector<int> LinkState::unheard() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    if (!knows(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<int> LinkState::unsettled() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    const auto& known = known_[static_cast<std::size_t>(rank)];
    if (known && !known->settled) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace mccl::rendezvous
