#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <span>

#include "rendezvous/connections/proof.h"
#include "rendezvous/store/key_agreement.h"
#include "support/folder.h"

namespace mccl::rendezvous {
namespace {

namespace fs = std::filesystem;

class KeyFileTest : public ::testing::Test {
 protected:
  mccl::testing::Folder folder_;
  const std::string key_ = make_job_key();
  const std::vector<std::string> folders_ = {folder_.path()};
};

TEST_F(KeyFileTest, IsForItsUserAloneAndGoneAfterwards) {
  std::string path;
  {
    const KeyFile file(folders_, key_);
    path = file.path();
    ASSERT_TRUE(fs::exists(path));
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    EXPECT_EQ(read_key_file(path), key_);
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(KeyFileTest, NoTwoHaveOneName) {
  const KeyFile one(folders_, key_), other(folders_, key_);
  EXPECT_NE(one.path(), other.path());
}

TEST_F(KeyFileTest, TheNextFolderIsTakenWhereOneCannotBe) {
  const std::vector<std::string> folders = {folder_.path() + "/absent", folder_.path()};
  const KeyFile file(folders, key_);
  EXPECT_TRUE(file.path().starts_with(folder_.path() + "/mccl-key-"));
  const KeyFile nowhere(std::span<const std::string>(folders).first(1), key_);
  EXPECT_EQ(nowhere.path(), "");
  EXPECT_FALSE(read_key_file(nowhere.path()));
}

TEST_F(KeyFileTest, WhatOthersMayOpenIsNotRead) {
  const KeyFile file(folders_, key_);
  for (const mode_t mode : {0640, 0604, 0660, 0700, 0400, 04600}) {
    ASSERT_EQ(::chmod(file.path().c_str(), mode), 0);
    EXPECT_FALSE(read_key_file(file.path())) << std::oct << mode;
  }
  ASSERT_EQ(::chmod(file.path().c_str(), 0600), 0);
  EXPECT_TRUE(read_key_file(file.path()));
}

TEST_F(KeyFileTest, AnotherUsersFileIsNotRead) {
  const KeyFile file(folders_, key_);
  if (::chown(file.path().c_str(), 65534, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP() << "only root may give a file to another user";
  EXPECT_FALSE(read_key_file(file.path()));
}

TEST_F(KeyFileTest, AnotherNameOfAFileIsNotRead) {
  const KeyFile file(folders_, key_);
  const std::string link = folder_.path() + "/mccl-key-link";
  fs::create_symlink(file.path(), link);
  EXPECT_FALSE(read_key_file(link));
  fs::remove(link);
  fs::create_hard_link(file.path(), link);
  EXPECT_FALSE(read_key_file(link));
  EXPECT_FALSE(read_key_file(file.path())) << "it has two names";
  fs::remove(link);
  EXPECT_TRUE(read_key_file(file.path()));
}

TEST_F(KeyFileTest, OtherFilesOfTheUserAreNotRead) {
  const auto refuses = [&](const std::string& name, const std::string& text) {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path) << text;
    EXPECT_EQ(::chmod(path.c_str(), 0600), 0);
    EXPECT_FALSE(read_key_file(path)) << name;
  };
  refuses("id_rsa", key_);
  refuses("mccl-key-short", "short");
  refuses("mccl-key-long", key_ + "\n");
  const std::string pipe = folder_.path() + "/mccl-key-pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(read_key_file(pipe));  // must not block until a writer opens it
  fs::create_directory(folder_.path() + "/mccl-key-folder");
  EXPECT_FALSE(read_key_file(folder_.path() + "/mccl-key-folder"));
  for (const char* path : {"", "mccl-key-x", "/", "/mccl-key-absent"})
    EXPECT_FALSE(read_key_file(path)) << path;
  EXPECT_FALSE(read_key_file("/" + std::string(1 << 20, 'a') + "/mccl-key-x"));
}

}  // namespace
}  // namespace mccl::rendezvous
