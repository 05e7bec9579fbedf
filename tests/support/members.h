// Makes the membership of a group of ranks 0 to size - 1, for tests of groups.
#pragma once

#include <vector>

#include "engine/calls/membership.h"

namespace mccl::testing {

inline engine::Membership membership(int rank, int size) {
  std::vector<WorldRank> members;
  for (int member = 0; member < size; ++member) members.emplace_back(member);
  return {"test", 1, std::move(members), WorldRank(rank)};
}

}  // namespace mccl::testing
