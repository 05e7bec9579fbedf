// Finds the known name that a misspelt one was probably meant to be.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mccl {

/// The minimum number of changes that turn one word into the other. A change inserts, drops or
/// replaces a letter, or swaps two neighbouring letters. Ignores case.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate that `name` was probably meant to be: the nearest one by edit distance, if the
/// distance is at most 1 or less than half of the length of `name`, and at least one letter
/// matches. Ignores leading dashes. If no candidate is near, returns the first candidate that
/// contains `name` as a whole word or is a whole word of `name`, as with tree and binomial_tree.
/// Otherwise returns nothing, because an unrelated name would mislead.
///
/// Among candidates at the same edit distance, prefers one with the same letters in another order,
/// then one of a different length, because letters are dropped more often than replaced. Further
/// ties go to the first candidate.
std::optional<std::string_view> nearest_of(std::string_view name,
                                           std::span<const std::string_view> candidates);

/// Text for a message: `did you mean ring? The choices are ring, chain`, or only the list if no
/// candidate is near.
std::string choices_near(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace mccl
