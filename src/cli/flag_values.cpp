#include "cli/flag_values.h"

#include <utility>

namespace mccl::cli {

ValueCheck integer_between(std::int64_t least, std::int64_t most) {
  return [least, most](const std::string& text) -> std::string {
    const auto value = parse_integer(text);
    if (value && *value >= least && *value <= most) return {};
    return fmt::format("expected an integer from {} to {}; found {}", least, most, in_quotes(text));
  };
}

ValueCheck number_between(double least, double most) {
  return [least, most](const std::string& text) -> std::string {
    const auto value = parse_number(text);
    if (value && *value >= least && *value <= most) return {};
    // Ten digits suffice for all bounds, and avoid the form 3.15e+07 for large ones.
    return fmt::format("expected a number from {:.10g} to {:.10g}; found {}", least, most,
                       in_quotes(text));
  };
}

ValueCheck one_of(std::vector<std::string_view> names) {
  return [names = std::move(names)](const std::string& text) -> std::string {
    if (std::ranges::find(names, text) != names.end()) return {};
    return fmt::format("{} is not known; {}", in_quotes(text), choices_near(text, names));
  };
}

}  // namespace mccl::cli
