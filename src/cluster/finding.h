// Findings about a cluster: faults and notes, with their consequences and cures, as text.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace mccl::cluster {

enum class Severity {
  note,     ///< Information only; needs no action.
  warning,  ///< Jobs run, but more slowly or less reliably than they could.
  problem,  ///< Jobs fail, now or eventually.
};

struct Finding {
  std::string id;  ///< Stable identifier for programs; docs/operating.md lists all identifiers.
  Severity severity = Severity::problem;
  std::string what;
  std::string where;  ///< The hosts concerned, with the interface, port or GPUs if known.
  std::string why;    ///< Consequences of the fault.
  std::string cure;   ///< Advice, often a command that fixes the fault. May be empty.
  /// A command that root can safely run without review, on the host named by `where`. Empty if no
  /// such command exists.
  std::string fix = {};
  std::string undo = {};  ///< Command that reverses `fix`.

  friend bool operator==(const Finding&, const Finding&) = default;
};

using Findings = std::vector<Finding>;

std::string_view name_of(Severity severity);

/// Returns the enumerator whose name_of() is `name`; `count` is the number of enumerators of the
/// type. Returns the first enumerator if none has that name.
template <typename Named>
Named named(const std::string& name, int count) {
  for (int i = 1; i < count; ++i)
    if (name_of(static_cast<Named>(i)) == name) return static_cast<Named>(i);
  return Named{};
}

inline void to_json(nlohmann::json& to, Severity severity) { to = name_of(severity); }
inline void from_json(const nlohmann::json& from, Severity& severity) {
  severity = named<Severity>(from.get<std::string>(), 3);
}
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Finding, id, severity, what, where, why, cure)

void append(Findings& findings, std::span<const Finding> more);

/// True for warnings and problems, which need action.
bool is_fault(const Finding& finding);

/// Sorts stably, with the most severe findings first.
void sort_by_severity(Findings& findings);

/// Returns the highest severity among warnings and problems; empty if there are none.
std::optional<Severity> worst_of(std::span<const Finding> findings);

/// Formats one paragraph per finding, for people.
std::string text_of(std::span<const Finding> findings);
/// Returns indented JSON with a final newline. Replaces invalid UTF-8, which hosts may report.
std::string dumped(const nlohmann::json& json);

}  // namespace mccl::cluster
