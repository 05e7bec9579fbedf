#include "engine/links/departing.h"

namespace mccl::engine {
namespace {

/// A peer that takes no bytes for so long is not going to.
constexpr std::chrono::seconds kPatience{2};

}  // namespace

void Departing::add(std::vector<std::unique_ptr<transport::Link>> links, Clock::time_point now) {
  for (auto& link : links) {
    // Memory that a link has borrowed is its caller's again.
    if (link->unsent() > 0 && link->borrowed() == 0)
      links_.emplace_back(std::move(link), now + kPatience);
  }
}

void Departing::watch(std::vector<pollfd>& descriptors) const {
  for (const auto& [link, until] : links_) descriptors.push_back({link->descriptor(), POLLOUT, 0});
}

void Departing::sweep(Clock::time_point now) {
  std::erase_if(links_, [now](const auto& entry) {
    return now >= entry.second || entry.first->unsent() == 0;
  });
}

}  // namespace mccl::engine
