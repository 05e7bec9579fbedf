// Checks of the values of flags, whose complaints say what was expected and what was found.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli {

/// For CLI::Option::check: an empty text where the value is good.
using ValueCheck = std::function<std::string(const std::string&)>;

ValueCheck integer_between(std::int64_t least, std::int64_t most);
ValueCheck number_between(double least, double most);
/// The names must outlive the check.
ValueCheck one_of(std::vector<std::string_view> names);

}  // namespace mccl::cli
