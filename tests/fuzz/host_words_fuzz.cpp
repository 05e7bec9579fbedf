// The facts that two hosts report, which may be any bytes. Every check must finish, and commands to
// run as root must contain no special characters of a shell.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/json_text.h"
#include "cluster/checks.h"
#include "cluster/choice.h"
#include "cluster/links.h"
#include "cluster/paths.h"
#include "cluster/read_facts.h"
#include "cluster/setup.h"
#include "input.h"
#include "mccl/error.h"

namespace {

using namespace mccl::cluster;
using nlohmann::json;

/// Reads a probe's JSON. Its "outputs" hold the output of programs on macOS and of nvidia-smi.
HostFacts facts_of(const std::string& host, std::string_view text) {
  json said;
  try {
    said = mccl::parse_json(text, "a host", "facts");
  } catch (const mccl::InvalidArgument&) {
  }
  HostFacts facts = read_facts(host, said);
  Outputs outputs;
  if (said.is_object() && said.contains("outputs") && said["outputs"].is_object())
    for (const auto& [name, output] : said["outputs"].items())
      if (output.is_string()) outputs[name] = output.get<std::string>();
  if (outputs.empty()) return facts;
  read_mac_network(facts, outputs);
  read_gpus(facts, outputs["nvidia-smi"]);
  read_versions(facts, outputs["python"]);
  // Facts must survive a round trip through JSON.
  return read_facts(
      host, json::parse(json_of(facts).dump(-1, ' ', false, json::error_handler_t::replace)));
}

bool is_harmless(const std::string& command) {
  return std::ranges::all_of(command, [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view(" ./_:@+-").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

void check_all(const std::vector<HostFacts>& hosts, const Connectivity& joined) {
  std::vector<Finding> findings;
  const auto add = [&](std::vector<Finding> more) {
    findings.insert(findings.end(), more.begin(), more.end());
  };
  for (const HostFacts& host : hosts) {
    add(check_machine(host));
    add(check_settings(host));
  }
  add(check_cluster(hosts));
  add(check_hostfile(hosts, std::vector<std::vector<std::string>>(hosts.size(), {"10.0.0.1"})));
  add(check_addressing(hosts, joined));
  add(check_paths(hosts, paths_of(hosts), joined));
  for (const Finding& finding : findings) {
    mccl::fuzz::require(!finding.what.empty() && !finding.why.empty(), "a finding says nothing");
    mccl::fuzz::require(is_harmless(finding.fix) && is_harmless(finding.undo), "a cure that harms");
  }
  mccl::fuzz::require(dumped(findings).ends_with('\n'), "findings that are no JSON");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all = mccl::fuzz::Input(data, size).text();
  constexpr std::string_view kNext = "\n===\n";
  const std::size_t next = std::min(all.find(kNext), all.size());
  const std::string_view rest = all.substr(std::min(next + kNext.size(), all.size()));
  const std::vector<HostFacts> hosts = {facts_of("a", all.substr(0, next)), facts_of("b", rest)};
  std::vector<Finding> findings;
  const std::vector<Heard> heard = {{{0, "eth0"}, {1, "eth0"}}, {{1, "en2"}, {0, "en2"}}};
  Connectivity joined = joined_by(hosts, heard);
  add_links(joined, thunderbolt_links(hosts, heard, findings));
  check_all(hosts, joined);
  const TopologyChoice choice = choose_cables(hosts, joined.links, "");
  mccl::fuzz::require(!table_of(joined, hosts).empty(), "a table of nothing");
  mccl::fuzz::require(!dot_of(joined, hosts).empty(), "a picture of nothing");
  try {
    for (const SetupStep& step : setup_steps(hosts, give_addresses(hosts, choice.links)))
      mccl::fuzz::require(is_harmless(step.command) && is_harmless(step.undo),
                          "a command that a shell takes for more");
  } catch (const mccl::Error&) {
  }
  return 0;
}
