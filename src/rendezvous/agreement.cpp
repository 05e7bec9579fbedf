#include "rendezvous/agreement.h"

#include <fmt/format.h>

#include <cctype>
#include <map>

namespace mccl::rendezvous {

namespace {

constexpr std::size_t kMaxShownBytes = 100;
constexpr int kMaxShownSettings = 8;

using Lines = std::map<std::string_view, std::string_view>;

Lines split(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t equals = line.find('=');
    if (line.empty()) continue;
    lines[line.substr(0, equals)] =
        equals == std::string_view::npos ? std::string_view() : line.substr(equals + 1);
  }
  return lines;
}

std::string shown(std::string_view text) {
  std::string safe(text.substr(0, kMaxShownBytes));
  for (char& c : safe) {
    if (std::isprint(static_cast<unsigned char>(c)) == 0) c = '?';
  }
  return text.size() > kMaxShownBytes ? safe + "..." : safe;
}

std::string value_in(const Lines& lines, std::string_view name) {
  const auto found = lines.find(name);
  if (found == lines.end()) return "no such setting";
  return found->second.empty() ? "nothing" : shown(found->second);
}

}  // namespace

std::string difference(const Settings& here, const Settings& there) {
  if (here.text == there.text) return {};
  const Lines mine = split(here.text);
  const Lines theirs = split(there.text);
  Lines names = mine;
  names.insert(theirs.begin(), theirs.end());
  std::string list;
  int count = 0;
  for (const auto& [name, unused] : names) {
    const auto a = mine.find(name);
    const auto b = theirs.find(name);
    if (a != mine.end() && b != theirs.end() && a->second == b->second) continue;
    if (++count > kMaxShownSettings) continue;
    list +=
        fmt::format("{}{} (rank {} has {}, rank {} has {})", list.empty() ? "" : ", ", shown(name),
                    here.rank, value_in(mine, name), there.rank, value_in(theirs, name));
  }
  if (count > kMaxShownSettings) list += fmt::format(" and {} more", count - kMaxShownSettings);
  if (count == 0) list = "their encoding (do the ranks run different versions of MCCL?)";
  return fmt::format(
      "the settings of rank {} and rank {} differ in {}; give every rank the same value", here.rank,
      there.rank, list);
}

}  // namespace mccl::rendezvous
