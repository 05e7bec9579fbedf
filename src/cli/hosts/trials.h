// Tries connections between hosts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/hosts/inquiry.h"

namespace mccl::cli::hosts {

/// A connection from one host to an address of another.
struct Trial {
  int from = 0;
  int to = 0;
  std::string source;  ///< An address of `from`. Empty: any.
  std::string target;
  std::size_t port = 0;  ///< Index into the ports of `to`.
};

struct Dialled {
  bool tried = false;  ///< Both hosts have a probe.
  bool good = false;
  std::string why;    ///< Why it failed.
  std::string local;  ///< Local address of the connection.
  double seconds = 0;
};

struct Timed {
  bool tried = false;  ///< It was begun before the time limit.
  bool good = false;
  double latency_s = 0;
  double bytes_per_s = 0;
};

/// Results are in the order of the trials.
std::vector<Dialled> dial(Inquiry& inquiry, std::span<const Trial> trials);
/// Returns, for each trial, whether a packet of this many bytes arrives.
std::vector<bool> send_packets(Inquiry& inquiry, std::span<const Trial> trials,
                               std::span<const int> bytes);
/// Measures latency and rate. No host takes part in two measurements at a time. Starts none after
/// `limit`.
std::vector<Timed> time_links(Inquiry& inquiry, std::span<const Trial> trials,
                              Clock::time_point limit);

}  // namespace mccl::cli::hosts
