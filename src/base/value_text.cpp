#include "base/value_text.h"

#include <arpa/inet.h>
#include <locale.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

namespace mccl {

namespace {

constexpr std::string_view kBlanks = " \t\r\n";

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

template <typename Integer>
std::optional<Integer> whole_integer(std::string_view text) {
  Integer value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return {};
  return value;
}

/// Returns the exponent of two for a unit. M, MB and MiB mean the same.
std::optional<int> unit_shift(std::string_view unit) {
  constexpr std::array<std::pair<std::string_view, int>, 4> kUnits = {
      {{"", 0}, {"k", 10}, {"m", 20}, {"g", 30}}};
  for (const auto& [name, shift] : kUnits) {
    if (equal_ignoring_case(unit, name)) return shift;
    if (equal_ignoring_case(unit, std::string(name) + 'b')) return shift;
    if (shift > 0 && equal_ignoring_case(unit, std::string(name) + "ib")) return shift;
  }
  return {};
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  return whole_integer<std::int64_t>(trimmed(text));
}

std::optional<double> parse_number(std::string_view text) {
  text = trimmed(text);
  if (text.empty() || text.find_first_not_of("0123456789+-.eE") != std::string_view::npos)
    return {};
  // Does not use std::from_chars: some supported standard libraries lack it for floating point.
  static const locale_t classic = ::newlocale(LC_ALL_MASK, "C", nullptr);
  const std::string terminated(text);
  char* stop = nullptr;
  const double value = ::strtod_l(terminated.c_str(), &stop, classic);
  if (stop != terminated.c_str() + terminated.size() || !std::isfinite(value)) return {};
  return value;
}

std::optional<std::vector<double>> parse_numbers(std::string_view text) {
  std::vector<double> values;
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    const std::size_t end = std::min(text.find_first_of(kBlanks), text.size());
    const auto value = parse_number(text.substr(0, end));
    if (!value) return {};
    values.push_back(*value);
    text.remove_prefix(end);
  }
  return values;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  text = trimmed(text);
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto value = whole_integer<std::uint64_t>(text.substr(0, digits));
  const auto shift = unit_shift(trimmed(text.substr(digits)));
  if (!value || !shift || *value > std::numeric_limits<std::uint64_t>::max() >> *shift) return {};
  return *value << *shift;
}

std::optional<bool> parse_boolean(std::string_view text) {
  text = trimmed(text);
  for (const std::string_view word : {"1", "true", "yes", "on"})
    if (equal_ignoring_case(text, word)) return true;
  for (const std::string_view word : {"0", "false", "no", "off"})
    if (equal_ignoring_case(text, word)) return false;
  return {};
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, lower_case_letter, lower_case_letter);
}

bool has_control_characters(std::string_view text) { return std::ranges::any_of(text, is_control); }

std::string printable(std::string_view text, std::size_t longest) {
  std::string result;
  for (const char c : text.substr(0, longest)) {
    if (is_control(c))
      fmt::format_to(std::back_inserter(result), "\\x{:02x}", static_cast<unsigned char>(c));
    else
      result += c;
  }
  if (text.size() > longest) {
    // A cut inside a multi-byte character would leave text that is not UTF-8.
    while (!result.empty() && (static_cast<unsigned char>(result.back()) & 0xc0) == 0x80)
      result.pop_back();
    if (!result.empty() && static_cast<unsigned char>(result.back()) >= 0xc0) result.pop_back();
    result += "...";
  }
  return result;
}

std::string in_quotes(std::string_view text) { return '"' + printable(text) + '"'; }

bool is_gid(std::string_view text) {
  constexpr std::string_view kKinds[] = {"roce_v2", "roce_v1", "infiniband", "ipv4", "ipv6"};
  return std::ranges::find(kKinds, text) != std::end(kKinds) || is_ip_address(text);
}

bool is_ip_address(std::string_view text) {
  const std::string address(text);
  in6_addr bytes = {};
  return ::inet_pton(AF_INET, address.c_str(), &bytes) == 1 ||
         ::inet_pton(AF_INET6, address.c_str(), &bytes) == 1;
}

std::string at_port(const std::string& host, int port) {
  const bool v6 = host.find(':') != host.npos && !host.starts_with('[');
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace mccl
