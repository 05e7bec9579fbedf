// A fault found in a cluster, with its consequences and its cure, as text for people.
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
  std::string id;  ///< Stable identifier for programs; docs/operating.md lists all.
  Severity severity = Severity::problem;
  std::string what;
  std::string where;  ///< A host, or a host and one of its parts.
  std::string why;    ///< Consequences of the fault.
  std::string cure;   ///< Advice: the command that fixes the fault, if there is one.
  /// A command that root can safely run without review, on the host named by `where`. Empty if
  /// there is none.
  std::string fix = {};
  std::string undo = {};  ///< Command that reverses `fix`.

  friend bool operator==(const Finding&, const Finding&) = default;
};

std::string_view name_of(Severity severity);

/// Returns the enumerator with this name among the first `count` ones. Returns the first enumerator
/// if none has it.
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

/// True for warnings and problems, which need action.
bool is_fault(const Finding& finding);

/// Sorts stably, with the most severe first.
void sort_by_severity(std::vector<Finding>& findings);

/// Returns the highest severity among warnings and problems; empty if there are only notes.
std::optional<Severity> worst_of(std::span<const Finding> findings);

/// Formats one paragraph per finding, for people.
std::string text_of(std::span<const Finding> findings);
/// Returns indented JSON with a final newline. Replaces bytes from hosts that are not valid UTF-8.
std::string dumped(const nlohmann::json& json);

}  // namespace mccl::cluster
