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

}  // namespace mccl::cluster
