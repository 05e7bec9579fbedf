#include "engine/groups/group_names.h"

#include <new>

namespace mccl::engine {

std::optional<std::uint32_t> GroupNames::give(const std::string& name, std::uint64_t identity) {
  if (living_.contains(name)) return std::nullopt;
  const auto [found, is_new] = times_.try_emplace(identity, Times{0, given_up_.end()});
  try {
    living_.emplace(name, identity);
  } catch (const std::bad_alloc&) {
    if (is_new) times_.erase(found);
    throw;
  }
  Times& times = found->second;
  if (times.given_up != given_up_.end()) given_up_.erase(times.given_up);
  times.given_up = given_up_.end();
  if (is_new) forget_the_oldest();
  return ++times.given;
}

void GroupNames::take_back(const std::string& name) noexcept {
  const auto living = living_.find(name);
  const auto times = times_.find(living->second);
  if (times != times_.end() && --times->second.given == 0) times_.erase(times);
  living_.erase(living);
}

void GroupNames::give_up(const std::string& name) {
  const auto living = living_.find(name);
  if (living == living_.end()) return;
  const auto times = times_.find(living->second);
  // Two identities with the same hash share an entry, so the other name may have been given up
  // before.
  if (times != times_.end() && times->second.given_up == given_up_.end()) {
    try {
      times->second.given_up = given_up_.insert(given_up_.end(), living->second);
    } catch (const std::bad_alloc&) {
      // The entry is kept forever, which is better than a name that stays taken.
    }
  }
  living_.erase(living);
  forget_the_oldest();
}

void GroupNames::forget_the_oldest() {
  while (times_.size() > most_ && !given_up_.empty()) {
    times_.erase(given_up_.front());
    given_up_.pop_front();
  }
}

}  // namespace mccl::engine
