// Limits of the values that a setting accepts.
#pragma once

#include <algorithm>
#include <string>

#include "mccl/config.h"

namespace mccl::test {

/// Returns the largest value of an integer setting according to its range ("1 to 63"), or `limit`
/// if that is smaller.
inline unsigned most_of(const SettingInfo& info, unsigned limit) {
  const std::string range(info.range);
  const std::size_t at = range.find(" to ");
  if (info.type != "integer" || at == std::string::npos) return limit;
  return static_cast<unsigned>(std::min<unsigned long>(limit, std::stoul(range.substr(at + 4))));
}

}  // namespace mccl::test
