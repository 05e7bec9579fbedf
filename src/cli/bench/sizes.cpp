#include "cli/bench/sizes.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::cli::bench {
namespace {

constexpr std::size_t kLargest = std::size_t{1} << 40;
constexpr std::size_t kMostSizes = 1000;
constexpr std::int64_t kLargestFactor = 1 << 20;

[[noreturn]] void refuse(std::string_view found, std::string_view why) {
  throw InvalidArgument(
      fmt::format("--sizes: {}: {}; expected sizes such as 8,64K,1M or a range such as 8:64M:x4",
                  in_quotes(found), why));
}

std::size_t size_of_text(std::string_view text) {
  const std::optional<std::uint64_t> bytes = parse_bytes(text);
  if (!bytes) refuse(text, "not a number of bytes");
  if (*bytes == 0) refuse(text, "nothing to measure");
  if (*bytes > kLargest) refuse(text, "more than 1024G");
  return static_cast<std::size_t>(*bytes);
}

std::size_t factor_of(std::string_view text, std::string_view whole) {
  const auto factor = text.starts_with('x') ? parse_integer(text.substr(1)) : std::nullopt;
  if (!factor || *factor < 2 || *factor > kLargestFactor)
    refuse(whole, "a range grows by a factor of 2 or more, such as x4");
  return static_cast<std::size_t>(*factor);
}

std::string_view take_until(std::string_view& rest, char separator) {
  const std::size_t end = rest.find(separator);
  const std::string_view part = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return part;
}

void add_range(std::string_view whole, std::vector<std::size_t>& sizes) {
  std::string_view rest = whole;
  const std::size_t first = size_of_text(take_until(rest, ':'));
  const std::size_t last = size_of_text(take_until(rest, ':'));
  const std::size_t factor =
      whole.find(':') == whole.rfind(':') ? std::size_t{2} : factor_of(rest, whole);
  if (last < first) refuse(whole, "the range ends below its start");
  for (std::size_t size = first; size <= last; size *= factor) sizes.push_back(size);
}

}  // namespace

std::vector<std::size_t> parse_sizes(std::string_view text) {
  std::vector<std::size_t> sizes;
  std::string_view rest = text;
  if (text.empty() || text.ends_with(',')) refuse(text, "a size is missing");
  while (!rest.empty()) {
    const std::string_view part = take_until(rest, ',');
    if (part.find(':') == std::string_view::npos) {
      sizes.push_back(size_of_text(part));
    } else {
      add_range(part, sizes);
    }
    if (sizes.size() > kMostSizes) refuse(text, "more than 1000 sizes");
  }
  return sizes;
}

std::string text_of_size(std::size_t bytes) {
  constexpr std::string_view kUnits[] = {"", "K", "M", "G"};
  std::size_t unit = 0;
  while (unit + 1 < std::size(kUnits) && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

}  // namespace mccl::cli::bench
