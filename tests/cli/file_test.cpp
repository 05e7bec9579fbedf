// Tests reading and writing of files whose paths users give, and temporary folders.
#include "cli/kit/file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/first_line.h"
#include "mccl/error.h"

namespace mccl::cli {
namespace {

namespace fs = std::filesystem;

class KeptFile : public ::testing::Test {
 protected:
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  const TemporaryFolder temporary_{"mccl-kept"};
  const fs::path folder_ = temporary_.path();
  const std::string path_ = (folder_ / "hosts.json").string();
};

TEST_F(KeptFile, KeepsOneBackup) {
  write_keeping_old(path_, "first");
  EXPECT_EQ(files(), 1U);
  write_keeping_old(path_, "second");
  EXPECT_EQ(contents_of(path_), "second");
  EXPECT_EQ(contents_of(path_ + ".bak"), "first");
  write_keeping_old(path_, "second");  // unchanged content keeps the backup
  EXPECT_EQ(contents_of(path_ + ".bak"), "first");
  write_keeping_old(path_, "third");
  EXPECT_EQ(contents_of(path_ + ".bak"), "second");
  EXPECT_EQ(files(), 2U);
}

TEST_F(KeptFile, KeepsPermissionsAndSymbolicLinks) {
  write_keeping_old(path_, "first");
  fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_write);
  const std::string link = (folder_ / "link").string();
  fs::create_symlink("hosts.json", link);
  write_keeping_old(link, "second");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(contents_of(path_), "second");
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(KeptFile, AFailedWriteLeavesTheOldFile) {
  EXPECT_THROW(write_keeping_old("/dev/full", "text"), Error);
  EXPECT_THROW(write_keeping_old((folder_ / "no/hosts.json").string(), "text"), Error);
  write_keeping_old(path_, "first");
  fs::create_directory(path_ + ".bak");
  std::ofstream(path_ + ".bak/file") << "x";
  EXPECT_THROW(write_keeping_old(path_, "second"), Error);
  EXPECT_EQ(contents_of(path_), "first");
  EXPECT_EQ(files(), 2U);
}

TEST(NamedFile, RefusesAnUnwritableFileBeforeTheRun) {
  EXPECT_THROW(check_writable("--json", "/no/such/folder/file"), InvalidArgument);
  EXPECT_NO_THROW(check_writable("--json", ""));
}

TEST(NamedFile, AFileThatCannotBeReadIsRefused) {
  for (const char* path : {"/no/such/file", "/", "/dev/zero"})
    EXPECT_THROW(read_file(path, path, "a hostfile"), InvalidArgument) << path;
}

TEST(TemporaryFolders, AreRemoved) {
  std::string path;
  {
    const TemporaryFolder folder("mccl-test");
    path = folder.path();
    write_file(path + "/file", "text");
    EXPECT_EQ(contents_of(path + "/file"), "text");
  }
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace mccl::cli
