// The known name that a misspelt one was probably meant to be.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mccl {

/// Letters inserted, dropped, replaced or swapped with their neighbour to turn one word into the
/// other; upper and lower case are alike.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate that `name` was probably meant to be: the nearest one whose distance is less than
/// half of the length of `name`, though one letter may always differ, dashes at the beginning not
/// counted; else the first that has `name` as one of its words, or is a word of it, as tree is of
/// binomial_tree. Nothing when there is none: a name of something else would only mislead. Of
/// several at the same distance: one of the same letters, since those were only swapped; then one
/// of another length, since letters are dropped more often than replaced; then the first.
std::optional<std::string_view> nearest_of(std::string_view name,
                                           std::span<const std::string_view> candidates);

/// For a message: `did you mean ring? There are ring, chain`, or only what there is.
std::string choices_near(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace mccl
