#include "base/cores.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <sstream>

#include "base/first_line.h"
#include "base/value_text.h"

namespace mccl {
namespace {

constexpr int kMostCores = 1 << 16;

struct Quota {
  double cores = 0;
  std::string folder;
};

/// Returns the smallest quota among those of a control group and its ancestors. In a container the
/// group itself may not be visible, but an ancestor is.
template <typename Read>
Quota tightest(const std::string& root, std::string path, Read read) {
  Quota found;
  for (;;) {
    const std::string folder = root + path;
    const double cores = read(folder);
    if (cores > 0 && (found.cores == 0 || cores < found.cores)) found = {cores, folder};
    if (path.empty() || path == "/") return found;
    path.erase(path.rfind('/'));
  }
}

Quota quota_of_this_process() {
  const std::string groups = contents_of("/proc/self/cgroup");
  Quota second = tightest("/sys/fs/cgroup", control_group_path(groups, ""), [](const auto& folder) {
    return quota_of_cpu_max(contents_of(folder + "/cpu.max"));
  });
  if (second.cores > 0) return second;
  return tightest("/sys/fs/cgroup/cpu", control_group_path(groups, "cpu"), [](const auto& folder) {
    return quota_of_cfs(contents_of(folder + "/cpu.cfs_quota_us"),
                        contents_of(folder + "/cpu.cfs_period_us"));
  });
}

std::vector<int> affinity() {
  std::vector<int> allowed;
#ifdef __linux__
  cpu_set_t* const set = CPU_ALLOC(kMostCores);
  const std::size_t bytes = CPU_ALLOC_SIZE(kMostCores);
  if (set != nullptr && ::sched_getaffinity(0, bytes, set) == 0) {
    for (int core = 0; core < kMostCores; ++core) {
      if (CPU_ISSET_S(core, bytes, set)) allowed.push_back(core);
    }
  }
  if (set != nullptr) CPU_FREE(set);
#endif
  return allowed;
}

std::optional<int> take_core(std::string_view& text) {
  int core = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), core);
  if (error != std::errc() || core < 0 || core >= kMostCores) return {};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return core;
}

/// Writes consecutive cores as a range: "0-3,8". Returns "-" if there are no cores.
std::string text_of(const std::vector<int>& cores) {
  std::string text;
  for (std::size_t i = 0; i < cores.size();) {
    std::size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cores[i]);
    if (last > i) text += fmt::format("-{}", cores[last]);
    i = last + 1;
  }
  return text.empty() ? "-" : text;
}

std::optional<std::vector<int>> parse_list(std::string_view text) {
  std::vector<int> cores;
  if (text == "-") return cores;
  for (;;) {
    const auto first = take_core(text);
    if (!first || (!cores.empty() && *first <= cores.back())) return {};
    auto last = first;
    if (!text.empty() && text[0] == '-') {
      text.remove_prefix(1);
      last = take_core(text);
      if (!last || *last < *first) return {};
    }
    for (int core = *first; core <= *last; ++core) cores.push_back(core);
    if (text.empty()) return cores;
    if (text[0] != ',') return {};
    text.remove_prefix(1);
  }
}

}  // namespace

double quota_of_cpu_max(std::string_view text) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) return 0;
  return quota_of_cfs(text.substr(0, space), text.substr(space + 1));
}

double quota_of_cfs(std::string_view quota_us, std::string_view period_us) {
  const auto quota = parse_number(quota_us);
  const auto period = parse_number(period_us);
  return quota && period && *quota > 0 && *period > 0 ? *quota / *period : 0;
}

std::string control_group_path(std::string_view text, std::string_view controller) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    std::string path = line.substr(second + 1);
    if (names.find(fmt::format(",{},", controller)) != std::string::npos && path.starts_with('/'))
      return path;
  }
  return {};
}

Cores cores_of_this_process() {
  Cores cores;
  cores.allowed = affinity();
  const Quota quota = quota_of_this_process();
  struct stat group = {};
  if (quota.cores > 0 && ::stat(quota.folder.c_str(), &group) == 0) {
    cores.quota = quota.cores;
    cores.quota_group = fmt::format("{}:{}", group.st_dev, group.st_ino);
  }
  return cores;
}

double patience_of(double processes_per_core) {
  constexpr double kAreNotFelt = 16;
  return std::max(1.0, processes_per_core / kAreNotFelt);
}

double processes_per_core(std::span<const Cores> processes, int all) {
  double most = 0;
  const auto crowd = [&](double count, double cores) { most = std::max(most, count / cores); };
  std::set<int> somewhere;
  std::set<std::vector<int>> masks;
  std::map<std::string, std::pair<int, double>> quotas;
  bool all_known = true;
  for (const Cores& each : processes) {
    somewhere.insert(each.allowed.begin(), each.allowed.end());
    if (each.allowed.empty()) {
      all_known = false;
    } else {
      masks.insert(each.allowed);
    }
    if (each.quota > 0) {
      auto& [count, quota] = quotas[each.quota_group];
      ++count;
      quota = each.quota;
    }
  }
  const auto size = static_cast<double>(processes.size());
  crowd(size,
        all_known && !somewhere.empty() ? static_cast<double>(somewhere.size()) : std::max(1, all));
  for (const std::vector<int>& mask : masks) {
    const auto inside = std::count_if(processes.begin(), processes.end(), [&](const Cores& each) {
      return !each.allowed.empty() &&
             std::includes(mask.begin(), mask.end(), each.allowed.begin(), each.allowed.end());
    });
    crowd(static_cast<double>(inside), static_cast<double>(mask.size()));
  }
  for (const auto& [group, shared] : quotas) crowd(shared.first, shared.second);
  return most;
}

std::string serialise(const Cores& cores) {
  return fmt::format("{} {} {}", text_of(cores.allowed), cores.quota, cores.quota_group);
}

std::optional<Cores> parse_cores(std::string_view text) {
  const std::size_t first = text.find(' ');
  const std::size_t second = first == std::string_view::npos ? first : text.find(' ', first + 1);
  if (second == std::string_view::npos) return {};
  const auto allowed = parse_list(text.substr(0, first));
  const auto quota = parse_number(text.substr(first + 1, second - first - 1));
  if (!allowed || !quota || !(*quota >= 0)) return {};
  Cores cores{*allowed, *quota, std::string(text.substr(second + 1))};
  if (serialise(cores) != text) return {};
  return cores;
}

}  // namespace mccl
