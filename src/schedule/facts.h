// Names the numbers in Facts, so that they can be shown, stored in files and set one by one.
#pragma once

#include <span>
#include <string_view>
#include <variant>

#include "schedule/choose.h"

namespace mccl::schedule {

struct FactInfo {
  std::string_view name;
  std::string_view unit;  ///< "s", "B/s", "B", or empty for a ratio.
  std::string_view meaning;
  std::variant<double Facts::*, std::size_t Facts::*> field;
};

/// All facts, in the order in which they are shown.
std::span<const FactInfo> fact_table();

/// Returns null if no fact has that name.
const FactInfo* find_fact(std::string_view name);

double value_of(const Facts& facts, const FactInfo& info);
/// True if a fact may have this value: it is finite, not too large for the fact's type, and above
/// 0 if the model divides by it.
bool is_possible(const FactInfo& info, double value);
/// Requires is_possible(). Counts of bytes are rounded down.
void assign(Facts& facts, const FactInfo& info, double value);

}  // namespace mccl::schedule
