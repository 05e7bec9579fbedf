// Finds what joins the hosts, and what to make of it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/config/flags.h"
#include "cli/hosts/inquiry.h"
#include "cluster/choice.h"

namespace mccl::cli::config {

struct Discovered {
  cluster::Joined joined;
  cluster::Choice choice;
  std::vector<cluster::Finding> findings;
};

Discovered discover(const ConfigFlags& flags, hosts::Inquiry& inquiry,
                    std::span<const cluster::HostFacts> facts);

/// At which hosts reach each other apart from their cables; by host, empty where there is none.
std::vector<std::string> side_addresses(std::span<const cluster::HostFacts> facts,
                                        const cluster::Joined& joined);

}  // namespace mccl::cli::config
