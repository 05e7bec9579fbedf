#include "base/rank_path.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "support/folder.h"

namespace mccl {
namespace {

TEST(PathOfRank, DiffersBetweenRanks) {
  const testing::Folder folder;
  const std::string process = std::to_string(::getpid());
  const auto path = [](const std::string& setting) {
    return path_of_rank(setting, 3, "desk", ".json");
  };
  EXPECT_EQ(path("/a/%h.%r.json"), "/a/desk.3.json");
  EXPECT_EQ(path("/a/%p-%%r%x%"), "/a/" + process + "-%r%x%.3");
  EXPECT_EQ(path("/a/record"), "/a/record.3");
  EXPECT_EQ(path(folder.path()), folder.path() + "/mccl-desk-3.json");
  EXPECT_EQ(path("/a/"), "/a/mccl-desk-3.json");
}

}  // namespace
}  // namespace mccl
