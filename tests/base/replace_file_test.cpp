#include "base/replace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <string>

#include "mccl/error.h"
#include "support/folder.h"

namespace mccl {
namespace {

using testing::contents_of;

TEST(ReplaceFile, KeepsTheOldFileUntilTheNewOneIsComplete) {
  const testing::Folder folder;
  const std::string path = folder.path() + "/file";
  replace_file(path, "old", 0600);
  replace_file(path, "new", 0640, [&] { EXPECT_EQ(contents_of(path), "old"); });
  EXPECT_EQ(contents_of(path), "new");
  struct stat about = {};
  ASSERT_EQ(::stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0640U);
}

TEST(ReplaceFile, AFailureLeavesTheOldFile) {
  const testing::Folder folder;
  const std::string path = folder.path() + "/file";
  replace_file(path, "old", 0600);
  const auto fail = [] { throw std::runtime_error("no"); };
  EXPECT_THROW(replace_file(path, "new", 0600, fail), std::runtime_error);
  EXPECT_EQ(contents_of(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  const std::string nowhere = folder.path() + "/no/file";
  EXPECT_THAT([&] { replace_file(nowhere, "x", 0600); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr(nowhere + ": No such file")));
}

}  // namespace
}  // namespace mccl
