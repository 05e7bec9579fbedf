// The known name that a misspelt one was probably meant to be.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace mccl {

/// Letters inserted, dropped, replaced or swapped with their neighbour to turn one word into the
/// other; upper and lower case are alike.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate at the least distance. Of several at the same: one of the same letters, since
/// those were only swapped; then one of another length, since letters are dropped more often than
/// replaced; then the first. `candidates` is not empty. Of a very long name only the beginning is
/// compared.
std::string_view nearest_of(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace mccl
