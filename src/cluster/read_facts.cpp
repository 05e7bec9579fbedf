#include "cluster/read_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <climits>

#include "base/value_text.h"

namespace mccl::cluster {
namespace {

constexpr std::size_t kMostVersions = 64;
constexpr std::size_t kMostGpus = 64;
constexpr std::size_t kMostVariables = 256;
constexpr std::size_t kLongestVariable = 4096;
constexpr std::size_t kLongestName = 64;
constexpr std::size_t kMostOdd = 16;

/// Maximum number of addresses in HostFacts::in_use. Further addresses, such as those of a server's
/// clients, are dropped.
constexpr std::size_t kMostInUse = 2000;

/// Removes the port from an address such as "192.168.1.9.443", the notation of macOS's netstat.
std::string_view without_port(std::string_view text) {
  if (std::ranges::count(text, '.') != 4) return text;
  return text.substr(0, text.rfind('.'));
}

/// Adds the network to `in_use` if it is private. No-op if `in_use` already holds the network or is
/// full.
void keep(HostFacts& facts, const Network& network, const std::string& by) {
  if (!is_private(network) || facts.in_use.size() == kMostInUse) return;
  const auto same = [&](const InUse& other) { return other.network == network; };
  if (std::ranges::none_of(facts.in_use, same)) facts.in_use.push_back({network, by});
}

/// Parses an IPv4 address as /proc/net/tcp prints it: eight hex digits of the value that a
/// little-endian machine reads from the address's bytes in network order.
std::optional<IpAddress> ipv4_of_hex(std::string_view text) {
  std::uint32_t bits = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits, 16);
  if (text.size() != 8 || error != std::errc() || end != text.data() + text.size()) return {};
  return IpAddress{__builtin_bswap32(bits)};
}

}  // namespace

void read_gpus(HostFacts& facts, std::string_view output) {
  for (const std::string_view line : lines_of(output)) {
    if (line.starts_with("No devices")) return;
    const std::size_t memory = line.find(',');
    const std::size_t driver = memory == line.npos ? memory : line.find(',', memory + 1);
    if (driver == line.npos || facts.gpus.size() == kMostGpus) {
      note_odd(facts, "nvidia-smi", "name, MiB, driver", line);
      return;
    }
    const long mib = count_of(line.substr(memory + 1, driver - memory - 1));
    facts.gpus.push_back({std::string(trimmed(line.substr(0, memory))),
                          static_cast<int>(std::min<long>(mib, INT_MAX)),
                          std::string(trimmed(line.substr(driver + 1)))});
  }
}

void read_versions(HostFacts& facts, std::string_view output) {
  for (const std::string_view line : lines_of(output)) {
    const auto words = words_of(line);
    if (words.size() == 2) keep_version(facts, std::string(words[0]), std::string(words[1]));
  }
}

void keep_version(HostFacts& facts, const std::string& package, const std::string& version) {
  if (facts.versions.size() < kMostVersions && is_plain_name(package))
    facts.versions[package] = plain_name(facts, "python", version);
}

void keep_variable(HostFacts& facts, const std::string& name, const std::string& value) {
  if (!name.starts_with("MCCL_")) return;
  if (facts.settings.size() == kMostVariables || value.size() > kLongestVariable)
    return note_odd(facts, "env", "at most 256 settings of at most 4096 bytes each", name);
  facts.settings[name] = name.ends_with("KEY") && !value.empty() ? "(set)" : value;
}

long count_of(std::string_view text) {
  return static_cast<long>(std::max<std::int64_t>(0, parse_integer(text).value_or(0)));
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = lower_case_letter(c);
  return lower;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && name.front() != '-' &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  std::string_view("_.:@+-").find(c) != std::string_view::npos;
         });
}

std::string plain_name(HostFacts& facts, const std::string& source, std::string_view name) {
  if (name.empty() || is_plain_name(name)) return std::string(name);
  note_odd(facts, source, "a name of letters, digits and _.:@+-", name);
  return {};
}

void keep_odd(HostFacts& facts, Finding finding) {
  if (facts.odd.size() < kMostOdd) facts.odd.push_back(std::move(finding));
}

void note_odd(HostFacts& facts, const std::string& source, const std::string& expected,
              std::string_view found) {
  keep_odd(facts, {.id = "answer-odd",
                   .severity = Severity::warning,
                   .what = fmt::format("the output of {} is not understood: expected {}; found {}",
                                       source, expected, in_quotes(found.substr(0, 60))),
                   .where = facts.host,
                   .why = "the facts that this command provides are missing from the results",
                   .cure = fmt::format("run {} on this host and check its output", source)});
}

void note_in_use(HostFacts& facts, std::string_view text, const std::string& by) {
  constexpr std::string_view kParts = "0123456789./";
  while (!text.empty()) {
    const std::size_t begin = std::min(text.find_first_of(kParts), text.size());
    text.remove_prefix(begin);
    const std::size_t length = std::min(text.find_first_not_of(kParts), text.size());
    std::string_view word = text.substr(0, length);
    text.remove_prefix(length);
    while (word.ends_with('.')) word.remove_suffix(1);
    if (const auto network = parse_network(without_port(word))) keep(facts, network->base(), by);
  }
}

void note_tcp_peers(HostFacts& facts, std::string_view table) {
  constexpr std::string_view kEstablished = "01";
  constexpr std::string_view kMapped = "0000000000000000FFFF0000";
  for (const std::string_view line : lines_of(table)) {
    const auto words = words_of(line);
    if (words.size() < 4 || words[3] != kEstablished) continue;
    std::string_view peer = words[2].substr(0, words[2].find(':'));
    if (peer.starts_with(kMapped)) peer.remove_prefix(kMapped.size());
    if (const auto address = ipv4_of_hex(peer)) keep(facts, {*address, 32}, "a TCP peer");
  }
}

}  // namespace mccl::cluster
