// Connections between hosts, tried for real.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/hosts/inquiry.h"

namespace mccl::cli::hosts {

/// From one host to an address of another.
struct Trial {
  int from = 0;
  int to = 0;
  std::string source;  ///< An address of `from`; empty for any.
  std::string target;
  std::size_t port = 0;  ///< Which of the ports of `to`.
};

struct Dialled {
  bool tried = false;  ///< Both hosts have a probe.
  bool good = false;
  std::string why;    ///< Why not.
  std::string local;  ///< The address that it left from.
  double seconds = 0;
};

struct Timed {
  bool tried = false;  ///< There was time for it.
  bool good = false;
  double latency_s = 0;
  double bytes_per_s = 0;
};

/// Each by trial, in their order.
std::vector<Dialled> dial(Inquiry& inquiry, std::span<const Trial> trials);
/// Whether packets of so many bytes arrive, by trial.
std::vector<bool> send_packets(Inquiry& inquiry, std::span<const Trial> trials,
                               std::span<const int> bytes);
/// No host takes part in two at a time. Begins none after `limit`.
std::vector<Timed> time_links(Inquiry& inquiry, std::span<const Trial> trials,
                              Clock::time_point limit);

}  // namespace mccl::cli::hosts
