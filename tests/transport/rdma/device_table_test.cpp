#include "transport/rdma/survey/device_table.h"

#include <gmock/gmock.h>

#include <fstream>
#include <optional>
#include <string>

#include "mccl/error.h"
#include "support/folder.h"

namespace mccl::transport::rdma {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class DeviceTableTest : public ::testing::Test {
 protected:
  std::string path_of(const std::string& text) const {
    const std::string path = folder_.path() + "/devices.json";
    std::ofstream(path) << text;
    return path;
  }
  std::string refusal_of(const std::string& text, std::optional<int> size) const {
    try {
      read_device_table(path_of(text), size);
    } catch (const InvalidArgument& refusal) {
      return refusal.what();
    }
    return "none";
  }

 private:
  const mccl::testing::Folder folder_;
};

TEST_F(DeviceTableTest, AnEntryHoldsAnyNumberOfNames) {
  const DeviceTable table =
      read_device_table(path_of(R"([[null, "a", ["b", "c"]], ["d", null, null],
                                    [["e", "f"], null, null]])"),
                        3);
  EXPECT_THAT(table[0], ElementsAre(IsEmpty(), ElementsAre("a"), ElementsAre("b", "c")));
  EXPECT_THAT(table[1], ElementsAre(ElementsAre("d"), IsEmpty(), IsEmpty()));
}

TEST_F(DeviceTableTest, RefusesMalformedEntriesWithTheirPosition) {
  EXPECT_THAT(refusal_of("", 2),
              HasSubstr("line 1, column 1: expected a list for each rank; found the end"));
  EXPECT_THAT(refusal_of("{}", 2), HasSubstr("each of 2 ranks"));
  EXPECT_THAT(refusal_of("[]", {}), HasSubstr("a list for each rank"));
  EXPECT_THAT(refusal_of(R"([[null, {"a": "b"}], ["a", null]])", 2), HasSubstr("found"));
  EXPECT_THAT(refusal_of(std::string(5'000, '[') + std::string(5'000, ']'), {}),
              HasSubstr("found brackets more than 64 deep"));
  EXPECT_THAT(refusal_of(R"([[null, "a"], ["a"]])", 2), HasSubstr("each of 2 ranks"));
  EXPECT_THAT(refusal_of(R"([[null, "a"], ["a", null]])", 3), HasSubstr("each of 3 ranks"));
  EXPECT_THAT(refusal_of(R"([[null, 7], ["a", null]])", 2), HasSubstr("from rank 0 to rank 1"));
  EXPECT_THAT(refusal_of(R"([[null, ["a", ""]], ["a", null]])", 2), HasSubstr("found"));
  EXPECT_THAT(refusal_of(R"([["a", "a"], ["a", null]])", 2), HasSubstr("from rank 0 to itself"));
  EXPECT_THAT(refusal_of(R"([[null, "a"], [null, null]])", 2),
              HasSubstr("from rank 1 to rank 0: none, and back: a"));
  EXPECT_THROW(read_device_table("/nowhere/at/all", 2), InvalidArgument);
  // A folder cannot be read, and reading /dev/zero would never end.
  for (const std::string& path : {::testing::TempDir(), std::string("/dev/zero")})
    EXPECT_THROW(read_device_table(path, 2), InvalidArgument) << path;
}

const std::string kMesh = R"([[null,"a","b"],["a",null,"c"],["b","c",null]])";
const std::string kRingOf4 =
    R"([[null,"a",null,"b"],["a",null,"b",null],[null,"a",null,"b"],["a",null,"b",null]])";
/// A ring of four without the cable between ranks 2 and 3.
const std::string kLine =
    R"([[null,"a",null,"b"],["a",null,"b",null],[null,"a",null,null],["a",null,null,null]])";

DeviceTable table_of(const std::string& text) { return parse_device_table(text, "table"); }

std::string refusal_of_shape(const std::string& text, bool ring) {
  try {
    require_shape("/the/table", table_of(text), ring);
  } catch (const InvalidArgument& refusal) {
    return refusal.what();
  }
  return "none";
}

TEST(TableShape, AMeshConnectsAllAndARingNeighbours) {
  EXPECT_TRUE(is_mesh(table_of(kMesh)));
  EXPECT_TRUE(is_ring(table_of(kMesh))) << "a mesh contains the ring";
  EXPECT_FALSE(is_mesh(table_of(kRingOf4)));
  EXPECT_TRUE(is_ring(table_of(kRingOf4)));
  EXPECT_FALSE(is_ring(table_of(kLine)));
  EXPECT_TRUE(is_ring(table_of(R"([[null,"a"],["b",null]])")));
  EXPECT_TRUE(is_ring(table_of("[[null]]"))) << "a single rank needs no device";
}

TEST(TableShape, ARingOfAMeshKeepsOnlyNeighbours) {
  const std::string mesh_of_4 =
      R"([[null,"a","b","c"],["a",null,"b","c"],["a","b",null,"c"],["a","b","c",null]])";
  const DeviceTable ring = ring_of(table_of(mesh_of_4));
  EXPECT_TRUE(is_ring(ring));
  EXPECT_TRUE(ring[0][2].empty());
  EXPECT_TRUE(ring[3][1].empty());
  EXPECT_EQ(ring[3][0], std::vector<std::string>{"a"});
}

TEST(TableShape, DrawsMissingLinksWithACommandToCheck) {
  EXPECT_EQ(refusal_of_shape(kMesh, false), "none");
  EXPECT_EQ(refusal_of_shape(kRingOf4, false), "none");
  EXPECT_EQ(refusal_of_shape(kRingOf4, true), "none");
  EXPECT_THAT(refusal_of_shape(kLine, true),
              AllOf(HasSubstr("/the/table"), HasSubstr("MCCL_RDMA_RING"),
                    HasSubstr("no device joins ranks 2 and 3"), HasSubstr("--backend jaccl-ring"),
                    HasSubstr("\n  from    to 0  to 1  to 2     to 3"),
                    HasSubstr("\n  rank 0  .     a     -        b\n"),
                    HasSubstr("\n  rank 2  -     a     .        MISSING\n")));
  EXPECT_THAT(refusal_of_shape(kLine, false),
              AllOf(HasSubstr("neither a mesh"), HasSubstr("MISSING")));
}

TEST(TableShape, OfManyRanksTheFirstAreDrawn) {
  const int ranks = 40;
  std::string text = "[";
  for (int a = 0; a < ranks; ++a) {
    text += a == 0 ? "[" : ",[";
    for (int b = 0; b < ranks; ++b) text += b == 0 ? "null" : ",null";
    text += "]";
  }
  const std::string what = refusal_of_shape(text + "]", false);
  EXPECT_THAT(what, AllOf(HasSubstr("and 36 more"), HasSubstr("... (40 ranks in all)")));
  EXPECT_THAT(what, Not(HasSubstr("rank 20 ")));
}

TEST(TableShape, ReadsAFileForItsNumberOfRanks) {
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
