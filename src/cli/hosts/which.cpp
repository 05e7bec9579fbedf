#include "cli/hosts/which.h"

#include <algorithm>

#include "cli/flag_values.h"
#include "cli/kit/host.h"

namespace mccl::cli::hosts {

namespace {

/// Rejects an empty value. It may be a shell variable that is not set, and would otherwise mean
/// this machine.
std::string complaint_of_nothing(const std::string& text) {
  return text.empty() ? "the value is empty; leave the flag out for this machine" : "";
}

}  // namespace

void add_flags(CLI::App& app, WhichHosts& which) {
  CLI::Option* hosts = app.add_option("--hosts", which.hosts,
                                      "Machines: [user@]name[:port], separated by commas; default\n"
                                      "127.0.0.1 (this machine)")
                           ->check(complaint_of_nothing)
                           ->option_text("LIST");
  app.add_option("--hostfile", which.hostfile, "JSON file of machines")
      ->excludes(hosts)
      ->check(complaint_of_nothing)
      ->option_text("FILE");
  hosts->option_text("LIST");
  app.add_option("--user", which.user, "User to log in as, for hosts without a user")
      ->option_text("NAME");
  app.add_option("--ssh-arg", which.ssh_arguments, "One more argument for ssh; may be repeated")
      ->option_text("ARG")
      ->allow_extra_args(false)
      ->take_all();
  app.add_option("--patience", which.patience,
                 "Seconds that a host may take to report its facts; default 60")
      ->check(integer_between(1, 3600))
      ->option_text("S");
  app.add_flag("--verbose", which.verbose, "Report every connection that is tested");
}

launch::Hostfile hosts_of(const WhichHosts& which) {
  launch::Hostfile file;
  if (!which.hostfile.empty()) {
    file = launch::read_hostfile(which.hostfile);
  } else if (!which.hosts.empty()) {
    file.hosts = parse_hosts("--hosts", which.hosts);
  } else {
    file.hosts = {Host{}};
  }
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
