#include "base/nearest.h"

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

/// What a slip of the same size most likely was; the likelier one is less.
enum class Slip { swapped, dropped_or_added, replaced };

Slip slip_of(std::string_view name, std::string_view candidate) {
  if (name.size() != candidate.size()) return Slip::dropped_or_added;
  return sorted_letters(name) == sorted_letters(candidate) ? Slip::swapped : Slip::replaced;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the usual matrix: a swap looks two rows back.
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

std::string_view nearest_of(std::string_view name, std::span<const std::string_view> candidates) {
  const std::string_view compared = name.substr(0, kLongestCompared);
  return *std::ranges::min_element(candidates, {}, [&](std::string_view candidate) {
    return std::pair(edit_distance(compared, candidate), slip_of(compared, candidate));
  });
}

}  // namespace mccl
