#include "cluster/version_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace mccl::cluster {
namespace {

/// Prefix of NCCL's packages; the rest of the name is the CUDA version.
constexpr std::string_view kNccl = "nvidia-nccl-";

struct Installed {
  std::string package;  ///< Its name in pip.
  std::string version;
};

/// Keyed by host name.
using InstalledByHost = std::map<std::string, Installed>;

/// Maps the packages of NCCL for different CUDA versions to one name.
std::string family_of(const std::string& package) {
  return package.starts_with(kNccl) ? "nccl" : package;
}

/// Groups the installed versions by family. Skips versions that could not be parsed, which have
/// their own finding.
std::map<std::string, InstalledByHost> families_of(std::span<const HostFacts> hosts) {
  std::map<std::string, InstalledByHost> families;
  for (const HostFacts& host : hosts)
    for (const auto& [package, version] : host.versions)
      if (!version.empty()) families[family_of(package)][host.host] = {package, version};
  return families;
}

/// Lists each host with its version, such as "a 1.0, b 1.1". Adds package names if `with_names`.
std::string list_of(const InstalledByHost& installed, bool with_names) {
  std::string text;
  for (const auto& [host, each] : installed)
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", host,
                        with_names ? each.package + " " : "", each.version);
  return text;
}

void check_differences(const InstalledByHost& installed, std::vector<Finding>& findings) {
  const Installed& first = installed.begin()->second;
  const bool same_names = std::ranges::all_of(
      installed, [&](const auto& each) { return each.second.package == first.package; });
  if (std::ranges::all_of(installed, [&](const auto& each) {
        return each.second.version == first.version && same_names;
      }))
    return;
  const std::string name = same_names ? first.package : family_of(first.package);
  const bool ours = name == "mccl" || name == "mccl-engine";
  if (name == "python" || name == "numpy") {
    findings.push_back({"version-differs", Severity::note,
                        fmt::format("versions of {} differ", name), list_of(installed, false),
                        "programs may behave differently there", ""});
    return;
  }
  findings.push_back(
      {"version-differs", ours ? Severity::problem : Severity::warning,
       fmt::format("versions of {} differ", name), list_of(installed, !same_names),
       ours ? "ranks with different wire protocols refuse to connect to each other"
            : "objects that one version pickles, compiles or loads may not work with the other",
       ours ? how_to_install("each")
            : fmt::format("install the same version on all hosts: pip install {}=={}",
                          first.package, first.version)});
}

/// A package without which a job may fail on a host, although it runs on the others.
struct Needed {
  std::string_view family;
  std::string_view why;
};

constexpr std::array kNeeded = {
    Needed{"torch", "a program that imports torch fails there at start-up"},
    Needed{"mlx", "a program that imports mlx fails there at start-up"},
    Needed{"nccl", "its GPUs cannot take part in calls for which other ranks use NCCL"},
};

/// True if the host needs the package. NCCL is needed only on hosts with GPUs. MLX is mostly used
/// on Macs, so it is needed only if a host of the same system has it.
bool should_have(const HostFacts& host, std::string_view family,
                 std::span<const HostFacts* const> owners) {
  if (family == "nccl") return !host.gpus.empty();
  return family != "mlx" || std::ranges::any_of(owners, [&](const HostFacts* owner) {
           return owner->system == host.system;
         });
}

void check_missing(std::span<const HostFacts> hosts, const Needed& needed,
                   const InstalledByHost& installed, std::vector<Finding>& findings) {
  std::vector<const HostFacts*> owners;
  for (const HostFacts& host : hosts)
    if (installed.contains(host.host)) owners.push_back(&host);
  const Installed& first = installed.begin()->second;
  for (const HostFacts& host : hosts) {
    const bool has_some = std::ranges::any_of(
        host.versions, [&](const auto& each) { return family_of(each.first) == needed.family; });
    if (has_some || !should_have(host, needed.family, owners)) continue;
    findings.push_back(
        {"package-missing", Severity::warning,
         fmt::format("{} is not installed, but {} of {} hosts {} it", needed.family, owners.size(),
                     hosts.size(), owners.size() == 1 ? "has" : "have"),
         host.host, std::string(needed.why),
         fmt::format("run with the Python of the ranks there: pip install {}=={}; \"python\" in "
                     "the hostfile selects another Python",
                     first.package, first.version)});
  }
}

}  // namespace

std::string how_to_install(const std::string& host) {
  return fmt::format(
      "install the same build there: run make wheel in the sources of MCCL here, copy the file "
      "with "
      "scp build/wheels/mccl_engine-*.whl {}: and run pip install --force-reinstall "
      "./mccl_engine-*.whl there; ssh must find mccl in its PATH, or beside the \"python\" of the "
      "hostfile",
      host);
}

std::vector<Finding> check_versions(std::span<const HostFacts> hosts) {
  std::vector<Finding> findings;
  const std::map<std::string, InstalledByHost> families = families_of(hosts);
  for (const auto& [family, installed] : families) {
    check_differences(installed, findings);
    const auto needed = std::ranges::find(kNeeded, family, &Needed::family);
    if (needed != kNeeded.end()) check_missing(hosts, *needed, installed, findings);
  }
  return findings;
}

}  // namespace mccl::cluster
