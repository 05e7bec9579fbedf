#include "cli/launch/ports.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "mccl/error.h"
#include "transport/tcp/listener.h"

namespace mccl::cli::launch {
namespace {

using transport::tcp::Address;
using transport::tcp::Listener;

constexpr int kLargestPort = std::numeric_limits<std::uint16_t>::max();

/// True if nothing listens at the port on this machine.
bool is_free(std::uint16_t port) {
  try {
    const Listener listener(Address::wildcard(AF_INET, port), 0);
    return true;
  } catch (const transport::tcp::BindError&) {
    return false;
  }
}

}  // namespace

std::vector<std::uint16_t> free_ports(std::size_t count) {
  std::vector<Listener> held;
  std::vector<std::uint16_t> ports;
  held.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    held.emplace_back(*Address::parse_numeric("0.0.0.0", 0), 0);
    ports.push_back(held.back().address().port());
  }
  return ports;
}

std::size_t ring_ports(const Job& job) {
  std::size_t ports = 0;
  for (const Rank& rank : job.ranks) {
    const std::size_t addresses = std::max<std::size_t>(1, job.entry_of(rank).addresses.size());
    ports += addresses * static_cast<std::size_t>(job.request.connections_per_address);
  }
  return ports;
}

Ports ports_from(const Job& job, int first) {
  const std::size_t needed = ring_ports(job);
  if (first < 3 || static_cast<std::size_t>(first) + needed > kLargestPort + 1) {
    throw InvalidArgument(
        fmt::format("--starting-port {}: the job needs {} ports starting at it, and two before it; "
                    "the last port is {}",
                    first, needed, kLargestPort));
  }
  Ports ports{.root = static_cast<std::uint16_t>(first - 2),
              .master = static_cast<std::uint16_t>(first - 1),
              .ring = {}};
  for (std::size_t i = 0; i < needed; ++i)
    ports.ring.push_back(static_cast<std::uint16_t>(static_cast<std::size_t>(first) + i));
  return ports;
}

std::vector<Reached> expected_places(const Job& job) {
  std::vector<Reached> places;
  for (const Host& host : job.hosts)
    places.push_back({is_here(host) && job.all_here() ? "127.0.0.1" : host.name, "FOLDER"});
  return places;
}

Ports choose_ports(const Job& job, const std::optional<int>& starting_port,
                   std::span<const Reached> places) {
  if (starting_port) return ports_from(job, *starting_port);
  if (job.all_here()) {
    const std::vector<std::uint16_t> free = free_ports(2 + ring_ports(job));
    return {.root = free[0], .master = free[1], .ring = {free.begin() + 2, free.end()}};
  }
  const bool some_here = std::ranges::any_of(job.hosts, is_here);
  const auto is_taken = [&](std::uint16_t port) {
    return (some_here && !places.empty() && !is_free(port)) ||
           std::ranges::any_of(places, [&](const Reached& at) { return at.taken.contains(port); });
  };
  constexpr int kBlocks = 64;
  for (int block = 0; block < kBlocks; ++block) {
    const int first = kUsualPort + block * static_cast<int>(2 + ring_ports(job));
    if (first + static_cast<int>(ring_ports(job)) > kLargestPort) break;
    Ports ports = ports_from(job, first);
    if (!is_taken(ports.root) && !is_taken(ports.master) &&
        std::ranges::none_of(ports.ring, is_taken))
      return ports;
  }
  return ports_from(job, kUsualPort);
}

}  // namespace mccl::cli::launch
