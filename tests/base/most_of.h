// Values that a setting takes.
#pragma once

#include <algorithm>
#include <string>

#include "mccl/config.h"

namespace mccl::test {

/// The largest of an integer setting, as its range has it ("1 to 63"), but no more than `limit`.
inline unsigned most_of(const SettingInfo& info, unsigned limit) {
  const std::string range(info.range);
  const std::size_t at = range.find(" to ");
  if (info.type != "integer" || at == std::string::npos) return limit;
  return static_cast<unsigned>(std::min<unsigned long>(limit, std::stoul(range.substr(at + 4))));
}

}  // namespace mccl::test
