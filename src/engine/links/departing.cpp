#include "engine/links/departing.h"

#include <fmt/format.h>

#include <utility>

namespace mccl::engine {

void Departing::add(std::vector<DepartingLink> links, Clock::time_point now) {
  for (DepartingLink& departing : links) {
    // Memory that a link has borrowed is its caller's again.
    if (departing.link->borrowed() > 0 || departing.link->depart()) continue;
    const std::size_t unsent = departing.link->unsent();
    links_.push_back({std::move(departing), unsent, now});
  }
}

void Departing::watch(std::vector<pollfd>& descriptors) const {
  for (const Waiting& each : links_) {
    descriptors.push_back({each.departing.link->descriptor(), POLLIN, 0});
  }
}

void Departing::sweep(Clock::time_point now) {
  std::erase_if(links_, [&](Waiting& each) { return is_over(each, now); });
}

bool Departing::is_over(Waiting& waiting, Clock::time_point now) const {
  transport::Link& link = *waiting.departing.link;
  if (link.depart()) return true;
  const std::size_t unsent = link.unsent();
  if (std::exchange(waiting.unsent, unsent) > unsent) waiting.moved = now;
  if (now - waiting.moved < patience_) return false;
  warn(waiting.departing, unsent,
       fmt::format("has taken nothing for {:.3g} s (MCCL_CONNECT_TIMEOUT)",
                   std::chrono::duration<double>(patience_).count()));
  return true;
}

void Departing::lose(WorldRank peer, transport::Loss loss) {
  if (loss == transport::Loss::told) return;
  std::erase_if(links_, [&](const Waiting& each) {
    if (each.departing.peer != peer) return false;
    warn(each.departing, each.unsent, "has fallen silent");
    return true;
  });
}

void Departing::warn(const DepartingLink& departing, std::size_t unsent,
                     const std::string& why) const {
  log_.warn(
      "rank {} {} since this rank destroyed a group: {} bytes of completed calls may be lost ({})",
      departing.peer, why, unsent, departing.link->description());
}

}  // namespace mccl::engine
