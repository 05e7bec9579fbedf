#include "cli/kit/quantity.h"

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <iterator>
#include <optional>
#include <span>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::cli {
namespace {

struct QuantityUnit {
  std::string_view name;
  double factor;
};

constexpr QuantityUnit kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
constexpr QuantityUnit kRates[] = {{"kbit", 1e3 / 8},  {"Mbit", 1e6 / 8}, {"Gbit", 1e9 / 8},
                                   {"Tbit", 1e12 / 8}, {"kB", 1e3},       {"MB", 1e6},
                                   {"GB", 1e9},        {"TB", 1e12}};
constexpr double kLongest = 60;
constexpr double kShortest = 1e-9;
constexpr double kSlowest = 100;
constexpr double kFastest = 1e15;

std::optional<double> parse(std::string_view text, std::span<const QuantityUnit> units) {
  const std::size_t split = text.find_first_not_of("0123456789.");
  if (split == std::string_view::npos) return {};
  const std::optional<double> number = parse_number(text.substr(0, split));
  std::string_view name = text.substr(split);
  while (name.starts_with(' ')) name.remove_prefix(1);
  for (const QuantityUnit& unit : units)
    if (equal_ignoring_case(name, unit.name) && name.back() == unit.name.back() && number)
      return *number * unit.factor;
  return {};
}

}  // namespace

double parse_seconds(std::string_view flag, std::string_view text) {
  const std::optional<double> seconds = parse(text, kTimes);
  if (seconds && *seconds >= kShortest && *seconds <= kLongest) return *seconds;
  throw InvalidArgument(fmt::format(
      "{}: {} is not a time; expected one from 1ns to 60s with its unit, such as 15us or 0.2ms",
      flag, in_quotes(text)));
}

double parse_rate(std::string_view flag, std::string_view text) {
  std::string_view rate = text;
  if (rate.ends_with("/s")) rate.remove_suffix(2);
  const std::optional<double> bytes = parse(rate, kRates);
  if (bytes && *bytes >= kSlowest && *bytes <= kFastest) return *bytes;
  throw InvalidArgument(
      fmt::format("{}: {} is not a rate; expected one with its unit, such as 10Gbit or 1.25GB/s",
                  flag, in_quotes(text)));
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

std::string text_of_seconds(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.4g} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.4g} ms", seconds * 1e3) : fmt::format("{:.4g} s", seconds);
}

std::string text_of_rate(double bytes_per_s) {
  return fmt::format("{:.4g} GB/s", bytes_per_s / 1e9);
}

std::string local_time_text(std::chrono::system_clock::time_point time, const char* format) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts = {};
  ::localtime_r(&seconds, &parts);
  std::array<char, 32> text = {};
  return {text.data(), std::strftime(text.data(), text.size(), format, &parts)};
}

std::string number_text(double value) {
  int places = 3;
  for (double bound = 100; places > 0 && value >= bound; bound *= 10) --places;
  return fmt::format("{:.{}f}", value, places);
}

std::string rate_text(double gbs) { return fmt::format("{:.{}f}", gbs, gbs < 100 ? 2 : 1); }

}  // namespace mccl::cli
