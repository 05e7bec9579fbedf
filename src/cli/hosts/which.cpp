#include "cli/hosts/which.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/flags.h"
#include "cli/kit/host.h"

namespace mccl::cli::hosts {

void add_flags(CLI::App& app, WhichHosts& which, const std::string& patience) {
  CLI::Option* hosts = add_value(app, "--hosts LIST", which.hosts,
                                 "Machines: [user@]name[:port], separated by commas; default\n"
                                 "127.0.0.1 (this machine)",
                                 not_empty);
  add_value(app, "--hostfile FILE", which.hostfile, "JSON file of machines", not_empty)
      ->excludes(hosts);
  add_value(app, "--user NAME", which.user, "User to log in as, for hosts without a user",
            not_empty);
  add_value(app, "--ssh-arg ARG", which.ssh_arguments,
            "One more argument for ssh; may be repeated");
  add_value(app, "--patience S", which.patience,
            fmt::format("Seconds that {}; default {}", patience, which.patience),
            integer_between(1, 3600));
}

launch::Hostfile hosts_of(const WhichHosts& which, std::vector<Host> usual) {
  launch::Hostfile file;
  file.hosts = std::move(usual);
  if (!which.hostfile.empty()) file = launch::read_hostfile(which.hostfile);
  if (!which.hosts.empty()) file.hosts = parse_hosts("--hosts", which.hosts);
  for (Host& host : file.hosts)
    if (!which.user.empty() && host.user.empty() && !is_here(host)) host.user = which.user;
  return file;
}

std::vector<Host> each_once(const std::vector<Host>& hosts) {
  std::vector<Host> once;
  for (const Host& host : hosts) {
    const auto same = std::ranges::find_if(
        once, [&](const Host& other) { return text_of(other) == text_of(host); });
    if (same == once.end()) {
      once.push_back(host);
    } else {
      same->addresses.insert(same->addresses.end(), host.addresses.begin(), host.addresses.end());
    }
  }
  return once;
}

}  // namespace mccl::cli::hosts
