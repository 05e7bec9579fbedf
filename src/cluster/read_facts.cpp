#include "cluster/read_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>

#include "base/value_text.h"

namespace mccl::cluster {
namespace {

constexpr std::size_t kMostVersions = 64;
constexpr std::size_t kMostGpus = 64;
constexpr std::size_t kMostVariables = 256;
constexpr std::size_t kLongestVariable = 4096;
constexpr std::size_t kLongestName = 64;
/// A host that says nothing that can be understood is told of often enough.
constexpr std::size_t kMostOdd = 16;

/// Absent for what is no number; "unlimited" is one.
std::optional<long> limit_of(std::string_view text) {
  if (text == "unlimited") return kNoLimit;
  const auto value = parse_integer(text);
  if (!value || *value < 0) return {};
  return static_cast<long>(*value);
}

void read_line(HostFacts& facts, std::string_view key, std::string_view value) {
  const std::string text(value);
  if (key == "system") {
    if (value == "Linux") facts.system = System::gnu_linux;
    if (value == "Darwin") facts.system = System::macos;
  }
  if (key == "os") facts.os = text;
  if (key == "kernel") facts.kernel = text;
  if (key == "processor") facts.processor = text;
  if (key == "uid") facts.is_root = value == "0";
  if (key == "sudo") facts.has_sudo = value == "yes";
  if (key == "files") facts.open_files = limit_of(value);
  if (key == "most_files") facts.most_open_files = limit_of(value);
  if (key == "locked") facts.locked_kib = limit_of(value);
  if (key == "cores") facts.cores = static_cast<int>(std::min(count_of(value), 1L << 20));
  if (key == "governor") facts.governor = text;
  if (key == "khz") facts.mhz = static_cast<int>(count_of(value) / 1000);
  if (key == "most_khz") facts.most_mhz = static_cast<int>(count_of(value) / 1000);
  if (key == "memory_kib") facts.memory_gib = static_cast<double>(count_of(value)) / (1 << 20);
  if (key == "load") facts.load = parse_number(value.substr(0, value.find(' '))).value_or(0);
  if (key == "shared_kib") facts.shared_kib = limit_of(value);
  if (key == "shared") facts.shared_writable = value == "yes";
  if (key == "mccl") facts.mccl = text;
  if (key == "boot") facts.boot = text;
  if (key == "mccl_version")
    facts.versions["mccl"] =
        plain_name(facts, "mccl --version", trimmed(value.substr(value.find(' ') + 1)));
}

void read_versions(HostFacts& facts, const Said& said) {
  const std::string* section = said.section("versions");
  if (section == nullptr) return;
  for (const std::string_view line : lines_of(*section)) {
    const auto words = words_of(line);
    if (words.size() == 2 && facts.versions.size() < kMostVersions && is_plain_name(words[0]))
      facts.versions[std::string(words[0])] = plain_name(facts, "python", words[1]);
  }
}

void read_variables(HostFacts& facts, const Said& said) {
  const std::string* section = said.section("variables");
  if (section == nullptr) return;
  for (const std::string_view line : lines_of(*section)) {
    const std::size_t equals = line.find('=');
    if (facts.variables.size() == kMostVariables || line.size() > kLongestVariable) {
      note_odd(facts, "env", "the settings of a shell", line);
      return;
    }
    if (line.starts_with("MCCL_") && equals != line.npos)
      facts.variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
}

void read_gpus(HostFacts& facts, const Said& said) {
  if (const std::string* links = said.section("gpu_links")) facts.gpu_links = *links;
  if (const std::string* peers = said.section("gpu_peers")) facts.gpu_peers = *peers;
  const std::string* section = said.section("gpu");
  if (section == nullptr) return;
  for (const std::string_view line : lines_of(*section)) {
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

}  // namespace

std::string_view name_of(Medium medium) {
  constexpr std::array<std::string_view, 5> kNames = {"cable", "Thunderbolt", "Wi-Fi", "software",
                                                      "loopback"};
  return kNames[static_cast<std::size_t>(medium)];
}

const Interface* HostFacts::interface(const std::string& name) const {
  const auto found = std::ranges::find(interfaces, name, &Interface::name);
  return found == interfaces.end() ? nullptr : &*found;
}

std::vector<std::string> HostFacts::items_of(const std::string& variable) const {
  std::vector<std::string> items;
  const auto found = variables.find(variable);
  if (found == variables.end()) return items;
  const std::string& list = found->second;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view item = trimmed(std::string_view(list).substr(begin, end - begin));
    if (!item.empty()) items.emplace_back(item);
    begin = end + 1;
  }
  return items;
}

long count_of(std::string_view text) {
  return static_cast<long>(std::max<std::int64_t>(0, parse_integer(text).value_or(0)));
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && name.front() != '-' &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  std::string_view("_.:@+-").find(c) != std::string_view::npos;
         });
}

std::string plain_name(HostFacts& facts, const std::string& section, std::string_view name) {
  if (name.empty() || is_plain_name(name)) return std::string(name);
  note_odd(facts, section, "a name of letters, digits and _.:@+-", name);
  return {};
}

void note_odd(HostFacts& facts, const std::string& section, const std::string& expected,
              std::string_view found) {
  if (facts.odd.size() == kMostOdd) return;
  facts.odd.push_back(
      {.severity = Severity::warning,
       .what = fmt::format("what {} says is not understood: expected {}; found {}", section,
                           expected, in_quotes(found.substr(0, 60))),
       .where = facts.host,
       .why = "what it would tell is missing from what follows",
       .cure =
           fmt::format("run {} there, and look whether its output is as it should be", section)});
}

void read_machine(HostFacts& facts, const Said& said) {
  const std::string* section = said.section("machine");
  if (section == nullptr || trimmed(*section).empty()) {
    note_odd(facts, "sh", "the host's description", section == nullptr ? "" : *section);
    return;
  }
  for (const std::string_view line : lines_of(*section)) {
    const std::size_t blank = line.find(' ');
    if (blank != line.npos) read_line(facts, line.substr(0, blank), trimmed(line.substr(blank)));
  }
  if (facts.system == System::unknown) note_odd(facts, "uname", "Linux or Darwin", *section);
}

HostFacts read_facts(const std::string& host, const Said& said) {
  HostFacts facts;
  facts.host = host;
  read_machine(facts, said);
  read_variables(facts, said);
  read_versions(facts, said);
  read_gpus(facts, said);
  if (facts.system == System::gnu_linux) read_linux_network(facts, said);
  if (facts.system == System::macos) read_mac_network(facts, said);
  return facts;
}

}  // namespace mccl::cluster
