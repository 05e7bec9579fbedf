#include "transport/rdma/survey/device_table.h"

#include <gmock/gmock.h>

#include <fstream>
#include <optional>
#include <string>

#include "mccl/error.h"
#include "support/folder.h"

namespace mccl::transport::rdma {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

TEST_F(DeviceTableTest, AnEntryIsNothingOrANameOrSeveral) {
  const DeviceTable table =
      read_device_table(path_of(R"([[null, "a", ["b", "c"]], ["d", null, null],
                                    [["e", "f"], null, null]])"),
                        3);
  EXPECT_THAT(table[0], ElementsAre(IsEmpty(), ElementsAre("a"), ElementsAre("b", "c")));
  EXPECT_THAT(table[1], ElementsAre(ElementsAre("d"), IsEmpty(), IsEmpty()));
}

TEST_F(DeviceTableTest, WhatIsMalformedIsRefusedWithItsPlace) {
  EXPECT_THAT(refusal_of("", 2), HasSubstr("is not JSON"));
  EXPECT_THAT(refusal_of("{}", 2), HasSubstr("each of 2 ranks"));
  EXPECT_THAT(refusal_of("[]", {}), HasSubstr("a list for each rank"));
  EXPECT_THAT(refusal_of(R"([[null, {"a": "b"}], ["a", null]])", 2), HasSubstr("found"));
  EXPECT_THAT(refusal_of(std::string(5'000, '[') + std::string(5'000, ']'), {}),
              HasSubstr("found"));
  EXPECT_THAT(refusal_of(R"([[null, "a"], ["a"]])", 2), HasSubstr("each of 2 ranks"));
  EXPECT_THAT(refusal_of(R"([[null, "a"], ["a", null]])", 3), HasSubstr("each of 3 ranks"));
  EXPECT_THAT(refusal_of(R"([[null, 7], ["a", null]])", 2), HasSubstr("from rank 0 to rank 1"));
  EXPECT_THAT(refusal_of(R"([[null, ["a", ""]], ["a", null]])", 2), HasSubstr("found"));
  EXPECT_THAT(refusal_of(R"([["a", "a"], ["a", null]])", 2), HasSubstr("from rank 0 to itself"));
  EXPECT_THAT(refusal_of(R"([[null, "a"], [null, null]])", 2),
              HasSubstr("from rank 1 to rank 0: none, and back: a"));
  EXPECT_THROW(read_device_table("/nowhere/at/all", 2), InvalidArgument);
  // A folder has no content to read, and /dev/zero has no end.
  for (const std::string& path : {::testing::TempDir(), std::string("/dev/zero")})
    EXPECT_THROW(read_device_table(path, 2), InvalidArgument) << path;
}

}  // namespace
}  // namespace mccl::transport::rdma
