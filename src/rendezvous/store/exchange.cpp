#include "rendezvous/store/exchange.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/value_text.h"
#include "mccl/error.h"
#include "rendezvous/connections/proof.h"
#include "rendezvous/connections/wire.h"
#include "rendezvous/store/memory_store.h"

namespace mccl::rendezvous {
namespace {

/// Size in bytes of each part of a published text except the last. A text is published in parts,
/// because a store limits the size of its values.
constexpr std::size_t kPartBytes = kMaxValueBytes / 2;

/// Minimum number of consecutive ranks that are written as a range: "5 to 7".
constexpr std::size_t kLongRun = 3;

/// Returns the ranks whose entry is `wanted`, and a verb: "0, 2 and 5 to 7 have".
std::string those_who(const std::vector<bool>& present, bool wanted) {
  std::vector<std::string> words;
  for (std::size_t first = 0, end = 0; first < present.size(); first = std::max(end, first + 1)) {
    for (end = first; end < present.size() && present[end] == wanted;) ++end;
    if (end - first >= kLongRun) {
      words.push_back(fmt::format("{} to {}", first, end - 1));
    } else {
      for (std::size_t rank = first; rank < end; ++rank) words.push_back(std::to_string(rank));
    }
  }
  if (words.empty()) return {};
  const std::string last = std::move(words.back());
  words.pop_back();
  const bool is_one = std::ranges::count(present, wanted) == 1;
  return fmt::format("{}{}{} {}", fmt::join(words, ", "), words.empty() ? "" : " and ", last,
                     is_one ? "has" : "have");
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
  const std::string here = those_who(present, true);
  return fmt::format("rank{} {} not {}{}{}", std::ranges::count(present, false) == 1 ? "" : "s",
                     those_who(present, false), done, here.empty() ? "" : "; ", here);
}

std::optional<std::string> find_now(Store& store, const std::string& key) {
  try {
    return store.get(key, milliseconds(1));
  } catch (const TimeoutError&) {
    return {};
  }
}

std::string with_proof(const SecretBytes& key, std::string_view name, std::string_view text) {
  const std::string proved = fmt::format("{}\n{}", name, text);
  return fmt::format("{}{}", text,
                     hex_of(prove(key.view(), "MCCL exchange", std::as_bytes(std::span(proved)))));
}

void Exchange::set(const std::string& name, std::string_view text) const {
  store_.set(name, with_proof(key_, name, text));
}

/// Reads an entry that the rank `writer` has written.
std::string Exchange::get(const std::string& name, milliseconds timeout, std::string_view stage,
                          int writer) const {
  std::string text = store_.get(name, timeout);
  const std::string found = text;
  text.resize(text.size() - std::min(text.size(), 2 * kProofBytes));
  const std::string expected = with_proof(key_, name, text);
  if (!same_proof(std::as_bytes(std::span(found)), std::as_bytes(std::span(expected))))
    throw CorruptionError(fmt::format(
        "rank {} does not start: what rank {} published in the store ({}) has no valid proof of "
        "the job's key. Either the two ranks have different keys (set the same MCCL_JOB_KEY on "
        "every rank), or another process writes to the store (use one that only the job's ranks "
        "reach, such as MCCL's own; see docs/security.md)",
        rank_, writer, content_of(stage)));
  return text;
}

std::vector<std::string> Exchange::all_gather(std::string_view stage,
                                              const std::string& card) const {
  return split(decide(stage, card, join_cards), stage);
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
  set(card_key(stage, rank_), card);
  return read(stage);
}

std::vector<std::string> Exchange::collect(std::string_view stage, const std::string& card) const {
  std::vector<std::string> cards{card};
  for (int peer = 1; peer < size_; ++peer) {
    try {
      cards.push_back(get(card_key(stage, peer), left_until(deadline_), stage, peer));
    } catch (const TimeoutError&) {
      const auto twice = find_now(store_, kCameTwice);
      throw TimeoutError(fmt::format(
          "rank 0 timed out (MCCL_CONNECT_TIMEOUT) waiting for all ranks to publish {}: {}; {}",
          content_of(stage), roll_call(who_has_said(stage), "published them"),
          twice ? printable(*twice) + ": was it meant to be another rank (MCCL_RANK)?"
                : "are those ranks stopped, or is MCCL_JOB_KEY set on some ranks only?"));
    }
  }
  return cards;
}

/// Returns which ranks have published their card of this stage, indexed by rank. The entry of rank
/// 0 is always true.
std::vector<bool> Exchange::who_has_said(std::string_view stage) const {
  std::vector<bool> has_said{true};
  for (int peer = 1; peer < size_; ++peer)
    has_said.push_back(find_now(store_, card_key(stage, peer)).has_value());
  return has_said;
}

void Exchange::publish(std::string_view stage, std::string_view text) const {
  const std::size_t parts = text.size() / kPartBytes + 1;
  for (std::size_t part = parts - 1; part > 0; --part) {
    set(part_key(stage, part), text.substr(part * kPartBytes, kPartBytes));
  }
  // The first part contains the number of parts and is written last, so that a reader that finds
  // the first part also finds all others.
  set(part_key(stage, 0), fmt::format("{}:{}", parts, text.substr(0, kPartBytes)));
}

std::string Exchange::read(std::string_view stage) const {
  std::string first;
  try {
    first = get(part_key(stage, 0), left_until(deadline_) + grace_, stage, 0);
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
    text += get(part_key(stage, part), left_until(deadline_) + grace_, stage, 0);
  }
  return text;
}

}  // namespace mccl::rendezvous
