// Tests which path is fastest according to measured times.
#include "backend/direct/figures.h"

#include <gmock/gmock.h>

namespace mccl::direct {
namespace {

using ::testing::ElementsAre;

Figures figures_of(float small, float middle, float large) {
  Figures figures;
  for (auto& row : figures.seconds) row = {small, middle, large};
  return figures;
}

Request request_of(Collective call, std::size_t bytes) {
  Request request;
  request.call.collective = call;
  request.call.dtype = DType::u8;
  request.call.count = bytes;
  return request;
}

TEST(Figures, OrdersPathsByTheirTimeForALength) {
  const std::vector<Figures> ways{figures_of(1, 5, 100), figures_of(2, 4, 90)};
  const auto order = [&](std::size_t bytes) {
    return fastest_first(ways, request_of(Collective::all_reduce, bytes));
  };
  EXPECT_THAT(order(1), ElementsAre(0, 1));
  EXPECT_THAT(order(kMeasuredBytes[0]), ElementsAre(0, 1));
  EXPECT_THAT(order(kMeasuredBytes[0] + (kMeasuredBytes[1] - kMeasuredBytes[0]) / 4),
              ElementsAre(0, 1));
  EXPECT_THAT(order(kMeasuredBytes[1]), ElementsAre(1, 0));
  EXPECT_THAT(order(std::size_t{1} << 40), ElementsAre(1, 0));
}

TEST(Figures, UnmeasuredPathsComeLastAndEqualPathsKeepTheirOrder) {
  const std::vector<Figures> ways{Figures{}, figures_of(1, 1, 1), figures_of(1, 1, 1)};
  EXPECT_THAT(fastest_first(ways, request_of(Collective::broadcast, 100)), ElementsAre(1, 2, 0));
  EXPECT_THAT(fastest_first(ways, request_of(Collective::barrier, 0)), ElementsAre(0, 1, 2));
}

TEST(Figures, ACallWithoutFiguresUsesThoseOfTheNearest) {
  std::vector<Figures> ways{figures_of(1, 1, 1), figures_of(2, 2, 2)};
  ways[0].seconds[1] = {9, 9, 9};  // in reduce_scatter
  EXPECT_THAT(fastest_first(ways, request_of(Collective::reduce, 10)), ElementsAre(1, 0));
  EXPECT_THAT(fastest_first(ways, request_of(Collective::gather, 10)), ElementsAre(0, 1));
}

TEST(Figures, UsesTheTimeOfTheSlowestRank) {
  Figures figures = figures_of(1, 5, 3);
  figures.take_slower(figures_of(2, 4, 3));
  for (const auto& row : figures.seconds) EXPECT_THAT(row, ElementsAre(2, 5, 3));
}

}  // namespace
}  // namespace mccl::direct
