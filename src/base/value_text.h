// Parses values in the forms that people write, and escapes text for display.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mccl {

/// Each parser returns nothing if `text` is not exactly one value. Blanks around the value are
/// allowed.
std::optional<std::int64_t> parse_integer(std::string_view text);
/// A decimal number, with or without an exponent, whatever the locale. Never infinite or NaN.
std::optional<double> parse_number(std::string_view text);
/// Numbers separated by blanks; an empty list if there are none.
std::optional<std::vector<double>> parse_numbers(std::string_view text);
/// An integer, with or without a unit. Units are powers of 1024 in every spelling and case: "4M",
/// "4MB" and "4mib" are the same, and so are "256k" and "262144B".
std::optional<std::uint64_t> parse_bytes(std::string_view text);
/// 0, 1, true, false, yes, no, on or off; letters may be upper or lower case.
std::optional<bool> parse_boolean(std::string_view text);

/// Removes leading and trailing blanks, tabs and line ends.
std::string_view trimmed(std::string_view text);

/// Converts only ASCII letters, whatever the locale.
constexpr char lower_case_letter(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
bool equal_ignoring_case(std::string_view a, std::string_view b);

bool has_control_characters(std::string_view text);

/// Replaces control characters by \xNN, and truncates the text after `longest` bytes.
std::string printable(std::string_view text, std::size_t longest = 120);
/// printable() in double quotes.
std::string in_quotes(std::string_view text);

/// True if `text` is a kind of RDMA address (GID), such as "roce_v2", or an IPv4 or IPv6 address.
bool is_gid(std::string_view text);
/// True for an IPv4 address, or an IPv6 address without brackets.
bool is_ip_address(std::string_view text);
/// Returns "host:port", with an IPv6 address in brackets.
std::string at_port(const std::string& host, int port);

}  // namespace mccl
