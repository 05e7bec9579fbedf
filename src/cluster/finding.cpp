#include "cluster/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/value_text.h"

namespace mccl::cluster {
namespace {

/// Escapes the text, which may come from a host, without cutting it.
std::string escaped(const std::string& text) { return printable(text, text.size()); }

}  // namespace

std::string_view name_of(Severity severity) {
  constexpr std::array<std::string_view, 3> kNames = {"note", "warning", "problem"};
  return kNames[static_cast<std::size_t>(severity)];
}

void append(Findings& findings, std::span<const Finding> more) {
  findings.insert(findings.end(), more.begin(), more.end());
}

bool is_fault(const Finding& finding) { return finding.severity != Severity::note; }

std::optional<Severity> worst_of(std::span<const Finding> findings) {
  std::optional<Severity> worst;
  for (const Finding& finding : findings)
    if (is_fault(finding)) worst = std::max(worst.value_or(finding.severity), finding.severity);
  return worst;
}

void sort_by_severity(Findings& findings) {
  std::ranges::stable_sort(findings, std::ranges::greater(), &Finding::severity);
}

std::string text_of(std::span<const Finding> findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{}: {}: {}\n", name_of(finding.severity), escaped(finding.where),
                        escaped(finding.what));
    if (!finding.why.empty()) text += fmt::format("  why:  {}\n", escaped(finding.why));
    if (!finding.cure.empty()) text += fmt::format("  cure: {}\n", escaped(finding.cure));
  }
  return text;
}

std::string dumped(const nlohmann::json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace mccl::cluster
