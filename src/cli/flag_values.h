// Checks of the values of flags. Their messages say what was expected and what was found.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/nearest.h"
#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::cli {

/// A function for CLI::Option::check. It returns an empty text if the value is valid.
using ValueCheck = std::function<std::string(const std::string&)>;

ValueCheck integer_between(std::int64_t least, std::int64_t most);
ValueCheck number_between(double least, double most);
/// Returns a check that accepts only these names, which must outlive it.
ValueCheck one_of(std::vector<std::string_view> names);

/// Returns the value whose name_of is `text`, in an enumeration of `count` values. Throws
/// InvalidArgument if there is none; the message lists all names and suggests the nearest.
template <typename Kind>
Kind kind_of(std::string_view flag, std::string_view text, int count) {
  std::vector<std::string_view> names(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    names[static_cast<std::size_t>(i)] = name_of(static_cast<Kind>(i));
  const auto found = std::ranges::find(names, text);
  if (found != names.end()) return static_cast<Kind>(found - names.begin());
  throw InvalidArgument(
      fmt::format("{}: {} is not known; {}", flag, in_quotes(text), choices_near(text, names)));
}

}  // namespace mccl::cli
