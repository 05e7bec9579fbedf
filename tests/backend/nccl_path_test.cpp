#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "backend/nccl/path.h"

namespace mccl::nccl {
namespace {

using ::testing::HasSubstr;

NcclOffer offer(std::string_view host, std::string_view bus, int version = 22809) {
  NcclOffer made{.card = {}, .version = version};
  std::ranges::copy(host, made.card.boot);
  std::ranges::copy(bus, made.card.bus);
  return made;
}

TEST(NcclPath, IsUsedBetweenHostsOnlyWithoutEncryption) {
  const std::vector<NcclOffer> hosts = {offer("a", "1"), offer("a", "2"), offer("b", "1")};
  EXPECT_EQ(objection_to(hosts, false), "");
  EXPECT_THAT(
      objection_to(hosts, true),
      HasSubstr("MCCL_ENCRYPTION is on, and NCCL does not encrypt what it sends between the "
                "hosts of ranks 0 and 2"));
  EXPECT_EQ(objection_to(std::vector{hosts[0], hosts[1]}, true), "");
}

TEST(NcclPath, NeedsOneGpuForEachRankAndOneVersion) {
  EXPECT_EQ(objection_to(std::vector{offer("a", "1"), offer("a", "1")}, false),
            "ranks 0 and 1 use the same GPU, 1");
  EXPECT_EQ(objection_to(std::vector{offer("a", "1"), offer("a", "2", 21800)}, false),
            "rank 1 has NCCL 21800, but rank 0 has 22809");
}

}  // namespace
}  // namespace mccl::nccl
