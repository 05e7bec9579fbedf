#include "engine/links/departing.h"

#include <fmt/format.h>

#include <map>
#include <new>
#include <utility>

namespace mccl::engine {
namespace {

/// Longest wait for a peer that keeps accepting bytes slowly, as a multiple of `patience_`
/// (MCCL_CONNECT_TIMEOUT).
constexpr int kMostPatience = 10;

}  // namespace

void Departing::add(DepartingLinks links, Clock::time_point now) noexcept {
  for (auto each = links.begin(); each != links.end();) {
    const auto departing = each++;
    // A link that still reads a caller's memory (borrowed()) is destroyed immediately, because the
    // caller may now reuse that memory.
    if (!departing->link || departing->link->borrowed() > 0 || departing->link->depart()) continue;
    departing->unsent = departing->link->unsent();
    departing->since = departing->moved = now;
    links_.splice(links_.end(), links, departing);
  }
}

void Departing::watch(std::vector<pollfd>& descriptors) const {
  for (const DepartingLink& each : links_) {
    descriptors.push_back({each.link->descriptor(), POLLIN, 0});
  }
}

void Departing::sweep(Clock::time_point now) noexcept {
  links_.remove_if([&](DepartingLink& each) { return is_over(each, now); });
}

bool Departing::is_over(DepartingLink& departing, Clock::time_point now) const noexcept {
  if (departing.link->depart()) return true;
  const std::size_t unsent = departing.link->unsent();
  if (std::exchange(departing.unsent, unsent) > unsent) departing.moved = now;
  if (now - departing.moved >= patience_) {
    warn(departing, "has accepted no data for MCCL_CONNECT_TIMEOUT");
    return true;
  }
  if (now >= end_) {
    warn(departing, "has not received everything within MCCL_CONNECT_TIMEOUT");
    return true;
  }
  if (now - departing.since < kMostPatience * patience_) return false;
  warn(departing, "has not received everything within ten times MCCL_CONNECT_TIMEOUT");
  return true;
}

void Departing::give_up(std::string_view why) noexcept {
  for (const DepartingLink& each : links_) warn(each, why);
  links_.clear();
}

std::string Departing::text() const {
  std::map<WorldRank, std::size_t> unsent;
  for (const DepartingLink& each : links_) unsent[each.peer] += each.unsent;
  std::string text;
  for (const auto& [peer, bytes] : unsent)
    text += fmt::format("{}rank {} ({} bytes)", text.empty() ? "" : ", ", peer, bytes);
  return text;
}

void Departing::lose(WorldRank peer, transport::Loss loss) noexcept {
  if (loss == transport::Loss::reported) return;
  links_.remove_if([&](const DepartingLink& each) {
    if (each.peer != peer) return false;
    warn(each, "has fallen silent");
    return true;
  });
}

void Departing::warn(const DepartingLink& departing, std::string_view why) const noexcept {
  try {
    log_.warn(
        "rank {} {}: up to {} bytes of completed calls of a group that this rank has destroyed may "
        "be lost ({})",
        departing.peer, why, departing.unsent, departing.link->description());
  } catch (const std::bad_alloc&) {
    // Memory has run out. The link is given up without the warning.
  }
}

}  // namespace mccl::engine
