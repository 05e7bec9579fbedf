#include "base/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/value_text.h"

namespace mccl {

namespace {

constexpr std::size_t kLongestCompared = 64;

std::string sorted_letters(std::string_view word) {
  std::string letters(word);
  std::ranges::transform(letters, letters.begin(), lower_case_letter);
  std::ranges::sort(letters);
  return letters;
}

/// Kinds of typing errors, the most likely first. Breaks ties between candidates at the same edit
/// distance.
enum class Slip { swapped, dropped_or_added, replaced };

Slip slip_of(std::string_view name, std::string_view candidate) {
  if (name.size() != candidate.size()) return Slip::dropped_or_added;
  return sorted_letters(name) == sorted_letters(candidate) ? Slip::swapped : Slip::replaced;
}

std::string_view without_dashes(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

/// True if `part` is one or more whole words of `whole`, whose words are separated by - and _.
bool is_word_of(std::string_view part, std::string_view whole) {
  const auto ends_word = [](char c) { return c == '_' || c == '-'; };
  const auto found =
      std::search(whole.begin(), whole.end(), part.begin(), part.end(),
                  [](char a, char b) { return lower_case_letter(a) == lower_case_letter(b); });
  if (part.empty() || found == whole.end()) return false;
  const auto end = std::next(found, static_cast<std::ptrdiff_t>(part.size()));
  return (found == whole.begin() || ends_word(*std::prev(found))) &&
         (end == whole.end() || ends_word(*end));
}

/// True if `candidate` is similar enough to `name` to be suggested: the edit distance is at most 1
/// or less than half the length of `name`, and at least one letter matches.
bool is_near(std::size_t distance, std::string_view name, std::string_view candidate) {
  const bool few = distance <= 1 || 2 * distance < name.size();
  return few && distance < std::max(name.size(), candidate.size());
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the matrix of distances are kept, because a swap refers to the row before the
  // previous one.
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower_case_letter(a[i - 1]) == lower_case_letter(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 &&
                           lower_case_letter(a[i - 1]) == lower_case_letter(b[j - 2]) &&
                           lower_case_letter(a[i - 2]) == lower_case_letter(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

std::optional<std::string_view> nearest_of(std::string_view name,
                                           std::span<const std::string_view> candidates) {
  name = without_dashes(name);
  if (name.size() > kLongestCompared || candidates.empty()) return {};
  const auto distance_to = [&](std::string_view candidate) {
    return edit_distance(name, without_dashes(candidate));
  };
  const auto nearest = *std::ranges::min_element(candidates, {}, [&](std::string_view candidate) {
    return std::pair(distance_to(candidate), slip_of(name, without_dashes(candidate)));
  });
  if (is_near(distance_to(nearest), name, without_dashes(nearest))) return nearest;
  const auto shares_word = std::ranges::find_if(candidates, [&](std::string_view candidate) {
    const std::string_view bare = without_dashes(candidate);
    return is_word_of(name, bare) || is_word_of(bare, name);
  });
  if (shares_word == candidates.end()) return {};
  return *shares_word;
}

std::string choices_near(std::string_view name, std::span<const std::string_view> candidates) {
  const auto nearest = nearest_of(name, candidates);
  const std::string all = fmt::format("he choices are {}", fmt::join(candidates, ", "));
  return nearest ? fmt::format("did you mean {}? T{}", *nearest, all) : "t" + all;
}

}  // namespace mccl
