// Tests writing files that a user may have edited since they were last written.
#include "cli/kept_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "mccl/error.h"

namespace mccl::cli {
namespace {

namespace fs = std::filesystem;

class KeptFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (fs::temp_directory_path() / "mccl-kept.XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = (folder_ / "hosts.json").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string text_in(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(KeptFile, TheOldOneIsKeptOnce) {
  write_keeping_old(path_, "first");
  EXPECT_EQ(files(), 1U);
  write_keeping_old(path_, "second");
  EXPECT_EQ(text_in(path_), "second");
  EXPECT_EQ(text_in(path_ + ".bak"), "first");
  write_keeping_old(path_, "second");  // unchanged content keeps the backup
  EXPECT_EQ(text_in(path_ + ".bak"), "first");
  write_keeping_old(path_, "third");
  EXPECT_EQ(text_in(path_ + ".bak"), "second");
  EXPECT_EQ(files(), 2U);
}

TEST_F(KeptFile, RightsAndLinksStay) {
  write_keeping_old(path_, "first");
  fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_write);
  const std::string link = (folder_ / "link").string();
  fs::create_symlink("hosts.json", link);
  write_keeping_old(link, "second");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(text_in(path_), "second");
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(KeptFile, WhatCannotBeWrittenLeavesTheOldOne) {
  EXPECT_THROW(write_keeping_old("/dev/full", "text"), Error);
  EXPECT_THROW(write_keeping_old((folder_ / "no/hosts.json").string(), "text"), Error);
  write_keeping_old(path_, "first");
  fs::create_directory(path_ + ".bak");
  std::ofstream(path_ + ".bak/file") << "x";
  EXPECT_THROW(write_keeping_old(path_, "second"), Error);
  EXPECT_EQ(text_in(path_), "first");
  EXPECT_EQ(files(), 2U);
}

}  // namespace
}  // namespace mccl::cli
