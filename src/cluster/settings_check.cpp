#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/settings.h"
#include "base/value_text.h"
#include "cluster/machine_check.h"
#include "mccl/error.h"

namespace mccl::cluster {
namespace {

constexpr const char* kWhy = "MCCL refuses to start with this setting";

bool has_address(const HostFacts& facts, const std::string& text) {
  const auto wanted = parse_ipv4(text);
  return std::ranges::any_of(facts.interfaces, [&](const Interface& interface) {
    return std::ranges::any_of(interface.addresses, [&](const Network& network) {
      return wanted && network.address == *wanted;
    });
  });
}

/// Returns the error text with which MCCL refuses the value; empty if the value is valid.
std::string refusal_of(const std::string& name, const std::string& value) {
  if (name == kConfigFileVariable || name == kMlxVariable || value == "(set)") return {};
  try {
    Config config;
    assign(config, find_setting(name), value, name);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

}  // namespace

std::vector<Finding> check_settings(const HostFacts& facts) {
  std::vector<Finding> findings;
  const auto add = [&](Severity severity, const std::string& name, std::string what,
                       std::string why) {
    findings.push_back({"setting-refused", severity, std::move(what), facts.host, std::move(why),
                        fmt::format("unset or correct {} in the shell's start-up files", name)});
  };
  for (const auto& [name, value] : facts.variables) {
    const std::string refusal = refusal_of(name, value);
    if (!refusal.empty()) add(Severity::problem, name, refusal, kWhy);
  }
  for (const std::string& address : facts.items_of("MCCL_LISTEN_ADDR")) {
    if (parse_ipv4(address) && !has_address(facts, address))
      add(Severity::problem, "MCCL_LISTEN_ADDR",
          fmt::format("MCCL_LISTEN_ADDR is {}, and no interface has that address", address), kWhy);
  }
  for (const std::string& name : facts.items_of("MCCL_IFNAME")) {
    if (facts.interface(name) == nullptr)
      add(Severity::problem, "MCCL_IFNAME",
          fmt::format("MCCL_IFNAME is {}, and there is no such interface", in_quotes(name)), kWhy);
  }
  return findings;
}

}  // namespace mccl::cluster
