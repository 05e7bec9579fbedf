// The numbers of Facts by name, so that they can be shown, kept in files and set one by one.
#pragma once

#include <span>
#include <string_view>
#include <variant>

#include "schedule/choose.h"

namespace mccl::schedule {

struct FactInfo {
  std::string_view name;
  std::string_view unit;  ///< "s", "B/s", "B", or nothing for a ratio.
  std::string_view meaning;
  std::variant<double Facts::*, std::size_t Facts::*> field;
};

/// In the order in which they are shown.
std::span<const FactInfo> fact_table();

/// Null when there is none of that name.
const FactInfo* find_fact(std::string_view name);

double value_of(const Facts& facts, const FactInfo& info);
/// Whether a fact may have this value: finite, above 0 where it divides, not too large to count.
bool is_possible(const FactInfo& info, double value);
/// Requires is_possible(). Bytes that are counted are rounded down.
void assign(Facts& facts, const FactInfo& info, double value);

}  // namespace mccl::schedule
