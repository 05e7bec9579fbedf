#include "engine/group_names.h"

namespace mccl::engine {

std::optional<std::uint32_t> GroupNames::give(const std::string& name, std::uint64_t identity) {
  if (!living_.emplace(name, identity).second) return std::nullopt;
  const auto [found, is_new] = times_.try_emplace(identity, Times{0, given_up_.end()});
  Times& times = found->second;
  if (times.given_up != given_up_.end()) given_up_.erase(times.given_up);
  times.given_up = given_up_.end();
  if (is_new) forget_the_oldest();
  return ++times.given;
}

void GroupNames::give_up(const std::string& name) {
  const auto living = living_.find(name);
  if (living == living_.end()) return;
  const auto times = times_.find(living->second);
  // Two names of one hash share it, so the other may have been given up before.
  if (times != times_.end() && times->second.given_up == given_up_.end()) {
    times->second.given_up = given_up_.insert(given_up_.end(), living->second);
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
