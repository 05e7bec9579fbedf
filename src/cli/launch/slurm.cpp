#include "cli/launch/slurm.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/node_list.h"
#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

constexpr std::int64_t kMostTasks = 4096;
constexpr std::size_t kMostNodes = 4096;

[[noreturn]] void refuse(const std::string& text) {
  throw InvalidArgument(fmt::format(
      "SLURM_TASKS_PER_NODE: {} is not a list of tasks; expected a list such as 4(x2),3",
      in_quotes(text)));
}

int count_of(std::string_view text, const std::string& whole) {
  const auto count = parse_integer(text);
  if (!count || *count < 1 || *count > kMostTasks) refuse(whole);
  return static_cast<int>(*count);
}

}  // namespace

std::vector<int> expand_tasks_per_node(const std::string& text) {
  std::vector<int> tasks;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = std::string_view(text).substr(begin, end - begin);
    const std::size_t times = item.find("(x");
    if (times != item.npos && item.back() != ')') refuse(text);
    const int repeated =
        times == item.npos ? 1 : count_of(item.substr(times + 2, item.size() - times - 3), text);
    tasks.insert(tasks.end(), static_cast<std::size_t>(repeated),
                 count_of(item.substr(0, times), text));
    if (tasks.size() > kMostNodes) refuse(text);
    begin = end + 1;
  }
  return tasks;
}

std::vector<Host> hosts_of_allocation(const std::map<std::string, std::string>& environment) {
  const auto nodes = environment.find("SLURM_JOB_NODELIST");
  if (nodes == environment.end()) {
    throw InvalidArgument(
        "--slurm: this is not a Slurm allocation: SLURM_JOB_NODELIST is not set; run it under "
        "salloc or sbatch, or give --hosts");
  }
  std::vector<Host> hosts;
  for (const std::string& name : expand_node_list(nodes->second, kMostNodes))
    hosts.push_back(parse_host("SLURM_JOB_NODELIST", name));
  const auto tasks = environment.find("SLURM_TASKS_PER_NODE");
  if (tasks == environment.end()) return hosts;
  const std::vector<int> slots = expand_tasks_per_node(tasks->second);
  if (slots.size() != hosts.size()) {
    throw InvalidArgument(fmt::format(
        "--slurm: SLURM_JOB_NODELIST has {} nodes and SLURM_TASKS_PER_NODE {}; give --hosts",
        hosts.size(), slots.size()));
  }
  for (std::size_t i = 0; i < hosts.size(); ++i) hosts[i].slots = slots[i];
  return hosts;
}

}  // namespace mccl::cli::launch
