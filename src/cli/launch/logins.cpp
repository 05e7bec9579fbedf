#include "cli/launch/logins.h"

#include <algorithm>
#include <sstream>

namespace mccl::cli::launch {

bool Logins::begin(const std::vector<std::string>& machines) {
  const auto full = [this](const std::string& machine) { return under_way_[machine] >= kMost; };
  if (std::ranges::any_of(machines, full)) return false;
  for (const std::string& machine : machines) ++under_way_[machine];
  return true;
}

void Logins::end(const std::vector<std::string>& machines) {
  for (const std::string& machine : machines) --under_way_[machine];
}

std::vector<std::string> machines_of_login(std::string_view settings) {
  std::vector<std::string> machines;
  std::string host;
  std::string port;
  std::istringstream lines{std::string(settings)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t blank = line.find(' ');
    if (blank == line.npos) continue;
    const std::string name = line.substr(0, blank);
    const std::string value = line.substr(blank + 1);
    if (name == "hostname") host = value;
    if (name == "port") port = value;
    if (value == "none") continue;
    // A proxy command counts as a machine, so all logins that use it share one limit.
    if (name == "proxycommand") machines.push_back(value);
    if (name != "proxyjump") continue;
    std::istringstream hops(value);
    for (std::string hop; std::getline(hops, hop, ',');) machines.push_back(hop);
  }
  if (!host.empty()) machines.push_back(host + " " + port);
  std::ranges::sort(machines);
  machines.erase(std::unique(machines.begin(), machines.end()), machines.end());
  return machines;
}

}  // namespace mccl::cli::launch
