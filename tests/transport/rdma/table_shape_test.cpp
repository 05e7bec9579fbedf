#include <gmock/gmock.h>

#include <fstream>
#include <string>

#include "mccl/error.h"
#include "support/folder.h"
#include "transport/rdma/survey/device_table.h"

namespace mccl::transport::rdma {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kMesh = R"([[null,"a","b"],["a",null,"c"],["b","c",null]])";
const std::string kRingOf4 =
    R"([[null,"a",null,"b"],["a",null,"b",null],[null,"a",null,"b"],["a",null,"b",null]])";
/// A ring of four without the cable between ranks 2 and 3.
const std::string kLine =
    R"([[null,"a",null,"b"],["a",null,"b",null],[null,"a",null,null],["a",null,null,null]])";

DeviceTable table_of(const std::string& text) { return parse_device_table(text, "table"); }

std::string refusal_of(const std::string& text, bool ring) {
  try {
    require_shape("/the/table", table_of(text), ring);
  } catch (const InvalidArgument& refusal) {
    return refusal.what();
  }
  return "none";
}

TEST(TableShape, AMeshJoinsAllAndARingEachToTheNext) {
  EXPECT_TRUE(is_mesh(table_of(kMesh)));
  EXPECT_TRUE(is_ring(table_of(kMesh))) << "what joins all joins neighbours";
  EXPECT_FALSE(is_mesh(table_of(kRingOf4)));
  EXPECT_TRUE(is_ring(table_of(kRingOf4)));
  EXPECT_FALSE(is_ring(table_of(kLine)));
  EXPECT_TRUE(is_ring(table_of(R"([[null,"a"],["b",null]])")));
  EXPECT_TRUE(is_ring(table_of("[[null]]"))) << "of one, nothing is missing";
}

TEST(TableShape, ARingOfAMeshHasOnlyWhatJoinsNeighbours) {
  const std::string mesh_of_4 =
      R"([[null,"a","b","c"],["a",null,"b","c"],["a","b",null,"c"],["a","b","c",null]])";
  const DeviceTable ring = ring_of(table_of(mesh_of_4));
  EXPECT_TRUE(is_ring(ring));
  EXPECT_TRUE(ring[0][2].empty());
  EXPECT_TRUE(ring[3][1].empty());
  EXPECT_EQ(ring[3][0], std::vector<std::string>{"a"});
}

TEST(TableShape, WhatIsMissingIsDrawnWithTheCommandThatFindsOut) {
  EXPECT_EQ(refusal_of(kMesh, false), "none");
  EXPECT_EQ(refusal_of(kRingOf4, false), "none");
  EXPECT_EQ(refusal_of(kRingOf4, true), "none");
  EXPECT_THAT(refusal_of(kLine, true),
              AllOf(HasSubstr("/the/table"), HasSubstr("MCCL_RDMA_RING"),
                    HasSubstr("no device joins ranks 2 and 3"), HasSubstr("--backend jaccl-ring"),
                    HasSubstr("\n  from    to 0  to 1  to 2     to 3"),
                    HasSubstr("\n  rank 0  .     a     -        b\n"),
                    HasSubstr("\n  rank 2  -     a     .        MISSING\n")));
  EXPECT_THAT(refusal_of(kLine, false), AllOf(HasSubstr("neither a mesh"), HasSubstr("MISSING")));
}

TEST(TableShape, OfManyRanksTheFirstAreDrawn) {
  const int ranks = 40;
  std::string text = "[";
  for (int a = 0; a < ranks; ++a) {
    text += a == 0 ? "[" : ",[";
    for (int b = 0; b < ranks; ++b) text += b == 0 ? "null" : ",null";
    text += "]";
  }
  const std::string what = refusal_of(text + "]", false);
  EXPECT_THAT(what, AllOf(HasSubstr("and 36 more"), HasSubstr("... of 40 ranks")));
  EXPECT_THAT(what, Not(HasSubstr("rank 20 ")));
}

TEST(TableShape, AFileIsReadForAsManyRanksAsItHas) {
  const mccl::testing::Folder folder;
  const std::string path = folder.path() + "/devices.json";
  std::ofstream(path) << kRingOf4;
  EXPECT_EQ(check_device_table(path, true), 4);
  std::ofstream(path) << kLine;
  EXPECT_THROW(check_device_table(path, false), InvalidArgument);
  EXPECT_THROW(check_device_table("/nowhere/at/all", false), InvalidArgument);
}

}  // namespace
}  // namespace mccl::transport::rdma
