// Reads what a host says of itself. Whatever it says: what cannot be understood is a finding.
#pragma once

#include <string>

#include "cluster/host_facts.h"
#include "cluster/said.h"

namespace mccl::cluster {

/// `host` is what people call it.
HostFacts read_facts(const std::string& host, const Said& said);

/// The parts of it, each of its own section.
void read_machine(HostFacts& facts, const Said& said);
void read_linux_network(HostFacts& facts, const Said& said);
void read_mac_network(HostFacts& facts, const Said& said);

/// Notes that the section cannot be understood, with the beginning of what it says instead.
void note_odd(HostFacts& facts, const std::string& section, const std::string& expected,
              std::string_view found);

/// A whole number that is not negative; 0 for everything else.
long count_of(std::string_view text);

/// Names of ports: macOS writes them in capitals, Linux does not.
std::string lower_case(std::string_view text);

/// What interfaces, devices and versions are called everywhere: such a name can stand in a command
/// that root runs, and means nothing to a shell. Hosts may say any; others are left out.
bool is_plain_name(std::string_view name);
/// The name, or nothing for one that is not plain, which is then noted.
std::string plain_name(HostFacts& facts, const std::string& section, std::string_view name);

}  // namespace mccl::cluster
