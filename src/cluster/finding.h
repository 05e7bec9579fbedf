// What is wrong with a cluster, told so that a person can cure it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace mccl::cluster {

enum class Severity {
  note,     ///< Good to know; nothing has to be done.
  warning,  ///< A job runs, slower or with less certainty than it could.
  problem,  ///< A job fails, or will some day.
};

struct Finding {
  std::string id;  ///< Stable, for programs; docs/operating.md lists all.
  Severity severity = Severity::problem;
  std::string what;
  std::string where;  ///< A host, or a host and a part of it.
  std::string why;    ///< Why it matters.
  std::string cure;   ///< A command where there is one.
  /// For root, where it is safe to be run without a look: on the host that `where` is. Else empty.
  std::string fix = {};
  std::string undo = {};

  friend bool operator==(const Finding&, const Finding&) = default;
};

std::string_view name_of(Severity severity);

/// Those that ask for something to be done.
bool is_fault(const Finding& finding);

/// The worst first; those of a kind in their order.
void sort_by_severity(std::vector<Finding>& findings);

/// Whether any is a problem, else whether any is a warning; nothing for notes alone.
std::optional<Severity> worst_of(std::span<const Finding> findings);

/// For people: a paragraph each.
std::string text_of(std::span<const Finding> findings);
nlohmann::json json_of(std::span<const Finding> findings);
/// With a line end. Hosts may say any bytes: those that are no UTF-8 are replaced.
std::string dumped(const nlohmann::json& json);

}  // namespace mccl::cluster
