#include "rendezvous/store/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/value_text.h"
#include "mccl/error.h"
#include "rendezvous/connections/wire.h"
#include "rendezvous/store/memory_store.h"

namespace mccl::rendezvous {
namespace {

using std::chrono::milliseconds;

/// Size in bytes of each part of a published text except the last. A text is published in parts,
/// because a store limits the size of its values.
constexpr std::size_t kPartBytes = kMaxValueBytes / 2;

/// Minimum number of consecutive ranks that are written as a range: "5 to 7".
constexpr std::size_t kLongRun = 3;

struct Ranks {
  std::string text;  ///< Text such as "0, 2 and 5 to 7".
  std::size_t count = 0;
};

Ranks those_who(const std::vector<bool>& present, bool wanted) {
  Ranks ranks;
  std::vector<std::string> words;
  for (std::size_t first = 0; first < present.size();) {
    if (present[first] != wanted) {
      ++first;
      continue;
    }
    std::size_t end = first;
    while (end < present.size() && present[end] == wanted) ++end;
    ranks.count += end - first;
    if (end - first >= kLongRun) {
      words.push_back(fmt::format("{} to {}", first, end - 1));
    } else {
      for (std::size_t rank = first; rank < end; ++rank) words.push_back(std::to_string(rank));
    }
    first = end;
  }
  for (std::size_t i = 0; i < words.size(); ++i) {
    ranks.text += i == 0 ? "" : i + 1 == words.size() ? " and " : ", ";
    ranks.text += words[i];
  }
  return ranks;
}

std::string card_key(std::string_view stage, int rank) { return fmt::format("{}/{}", stage, rank); }
std::string part_key(std::string_view stage, std::size_t part) {
  return fmt::format("{}/all/{}", stage, part);
}

/// Describes, for messages, the content of the texts (cards) that the ranks publish in a stage.
std::string_view content_of(std::string_view stage) {
  if (stage == "places") return "their hosts";
  if (stage == "neighbours") return "their shared-memory neighbours";
  return stage;
}

[[noreturn]] void refuse(std::string_view stage) {
  throw CorruptionError(
      fmt::format("the store's table of the data that the ranks publish ({}) is invalid; is the "
                  "store shared with another program?",
                  content_of(stage)));
}

/// Removes "number:" from the front of the text and returns the number.
std::size_t take_number(std::string_view& text, std::string_view stage) {
  const bool has_colon = text.find(':') != text.npos;
  const auto value = parse_integer(next_part(text, ':'));
  if (!has_colon || !value || *value < 0) refuse(stage);
  return static_cast<std::size_t>(*value);
}

std::string join_cards(const std::vector<std::string>& cards) {
  std::string text;
  for (const std::string& card : cards) text += fmt::format("{}:{}", card.size(), card);
  return text;
}

}  // namespace

std::string roll_call(const std::vector<bool>& present, std::string_view done) {
  const auto have = [](const Ranks& ranks) { return ranks.count == 1 ? "has" : "have"; };
  const Ranks absent = those_who(present, false);
  const Ranks here = those_who(present, true);
  const std::string others = here.count == 0 ? "" : fmt::format("; {} {}", here.text, have(here));
  return fmt::format("rank{} {} {} not {}{}", absent.count == 1 ? "" : "s", absent.text,
                     have(absent), done, others);
}

std::optional<std::string> find_now(Store& store, const std::string& key) {
  try {
    return store.get(key, milliseconds(1));
  } catch (const TimeoutError&) {
    return {};
  }
}

std::vector<std::string> Exchange::all_gather(std::string_view stage,
                                              const std::string& card) const {
  return split(decide(stage, card, join_cards), stage);
}

std::vector<std::string> Exchange::published(std::string_view stage) const {
  return split(read(stage), stage);
}

std::vector<std::string> Exchange::split(std::string_view table, std::string_view stage) const {
  std::vector<std::string> cards;
  for (int rank = 0; rank < size_; ++rank) {
    const std::size_t bytes = take_number(table, stage);
    if (bytes > table.size()) refuse(stage);
    cards.emplace_back(table.substr(0, bytes));
    table.remove_prefix(bytes);
  }
  return cards;
}

std::string Exchange::decide(std::string_view stage, const std::string& card,
                             const Decide& decide) const {
  if (rank_ == 0) {
    std::string text = decide(collect(stage, card));
    publish(stage, text);
    return text;
  }
  store_.set(card_key(stage, rank_), card);
  return read(stage);
}

std::vector<std::string> Exchange::collect(std::string_view stage, const std::string& card) const {
  std::vector<std::string> cards{card};
  for (int peer = 1; peer < size_; ++peer) {
    try {
      cards.push_back(store_.get(card_key(stage, peer), left_until(deadline_)));
    } catch (const TimeoutError&) {
      const auto twice = find_now(store_, kCameTwice);
      throw TimeoutError(fmt::format(
          "rank 0 timed out (MCCL_CONNECT_TIMEOUT) waiting for all ranks to publish {}: {}; {}",
          content_of(stage), roll_call(who_has_said(stage), "published them"),
          twice ? *twice + ": was it meant to be another rank (MCCL_RANK)?"
                : "are those ranks stopped?"));
    }
  }
  return cards;
}

/// Returns which ranks have published their card of this stage, indexed by rank. The entry of rank
/// 0 is always true.
std::vector<bool> Exchange::who_has_said(std::string_view stage) const {
  std::vector<bool> has_said;
  has_said.reserve(static_cast<std::size_t>(size_));
  for (int peer = 0; peer < size_; ++peer)
    has_said.push_back(peer == 0 || find_now(store_, card_key(stage, peer)).has_value());
  return has_said;
}

void Exchange::publish(std::string_view stage, std::string_view text) const {
  const std::size_t parts = text.size() / kPartBytes + 1;
  for (std::size_t part = parts - 1; part > 0; --part) {
    store_.set(part_key(stage, part), text.substr(part * kPartBytes, kPartBytes));
  }
  // The first part contains the number of parts and is written last, so that a reader that finds
  // the first part also finds all others.
  store_.set(part_key(stage, 0), fmt::format("{}:{}", parts, text.substr(0, kPartBytes)));
}

std::string Exchange::read(std::string_view stage) const {
  std::string first;
  try {
    first = store_.get(part_key(stage, 0), left_until(deadline_) + grace_);
  } catch (const TimeoutError&) {
    const std::vector<bool> has_said = who_has_said(stage);
    const bool all = std::ranges::find(has_said, false) == has_said.end();
    throw TimeoutError(fmt::format(
        "rank {} timed out (MCCL_CONNECT_TIMEOUT) waiting for all ranks to publish {}: {}", rank_,
        content_of(stage),
        all ? "all ranks have published them, but rank 0 has not passed them on; is rank 0 stopped?"
            : roll_call(has_said, "arrived") + "; are those ranks running with the same store?"));
  }
  std::string_view rest = first;
  const std::size_t parts = take_number(rest, stage);
  std::string text(rest);
  for (std::size_t part = 1; part < parts; ++part) {
    text += store_.get(part_key(stage, part), left_until(deadline_) + grace_);
  }
  return text;
}

}  // namespace mccl::rendezvous
