#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <span>

#include "rendezvous/connections/proof.h"
#include "support/folder.h"

namespace mccl::rendezvous {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;

TEST(PrivateFolders, PreferMemoryFileSystems) {
  EXPECT_THAT(private_folders({}), ElementsAre("/dev/shm", "/tmp"));
  EXPECT_THAT(private_folders({{"XDG_RUNTIME_DIR", "/run/user/7"}, {"TMPDIR", "/scratch"}}),
              ElementsAre("/dev/shm", "/run/user/7", "/scratch", "/tmp"));
  EXPECT_THAT(private_folders({{"XDG_RUNTIME_DIR", "here"}, {"TMPDIR", ""}}),
              ElementsAre("/dev/shm", "/tmp"));
}

class KeyFileTest : public ::testing::Test {
 protected:
  mccl::testing::Folder folder_;
  const std::vector<std::string> folders_ = {folder_.path()};
};

TEST_F(KeyFileTest, IsPrivateAndRemovedAfterwards) {
  std::string path;
  {
    const KeyFile file(folders_);
    path = file.path();
    ASSERT_TRUE(fs::exists(path));
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    EXPECT_EQ(read_key_file(path), file.key());
    EXPECT_EQ(find_key_file(folders_, file.name()), file.key());
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(KeyFileTest, NamesAreUnique) {
  const KeyFile one(folders_), other(folders_);
  EXPECT_NE(one.path(), other.path());
}

TEST_F(KeyFileTest, UsesTheNextFolderIfOneIsUnusable) {
  const std::vector<std::string> folders = {folder_.path() + "/absent", folder_.path()};
  const KeyFile file(folders);
  EXPECT_TRUE(file.path().starts_with(folder_.path() + "/mccl-key-"));
  const KeyFile nowhere(std::span<const std::string>(folders).first(1));
  EXPECT_EQ(nowhere.path(), "");
  EXPECT_FALSE(read_key_file(nowhere.path()));
}

TEST_F(KeyFileTest, RefusesAFileThatOthersMayOpen) {
  const KeyFile file(folders_);
  for (const mode_t mode : {0640, 0604, 0660, 0700, 0400, 04600}) {
    ASSERT_EQ(::chmod(file.path().c_str(), mode), 0);
    EXPECT_FALSE(read_key_file(file.path())) << std::oct << mode;
  }
  ASSERT_EQ(::chmod(file.path().c_str(), 0600), 0);
  EXPECT_TRUE(read_key_file(file.path()));
}

TEST_F(KeyFileTest, RefusesAFileOfAnotherUser) {
  const KeyFile file(folders_);
  if (::chown(file.path().c_str(), 65534, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP() << "only root may give a file to another user";
  EXPECT_FALSE(read_key_file(file.path()));
}

TEST_F(KeyFileTest, RefusesAFileWithAnotherName) {
  const KeyFile file(folders_);
  const std::string link = folder_.path() + "/mccl-key-link";
  fs::create_symlink(file.path(), link);
  EXPECT_FALSE(read_key_file(link));
  fs::remove(link);
  fs::create_hard_link(file.path(), link);
  EXPECT_FALSE(read_key_file(link));
  EXPECT_FALSE(read_key_file(file.path())) << "a file with two hard links was read";
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
  const std::string key(make_job_key().view());
  refuses("id_rsa", key);
  refuses("mccl-key-short", "short");
  refuses("mccl-key-long", key + "\n");
  const std::string pipe = folder_.path() + "/mccl-key-pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(read_key_file(pipe));  // must not block until a writer opens it
  fs::create_directory(folder_.path() + "/mccl-key-folder");
  EXPECT_FALSE(read_key_file(folder_.path() + "/mccl-key-folder"));
  for (const char* path : {"", "mccl-key-x", "/", "/mccl-key-absent"})
    EXPECT_FALSE(read_key_file(path)) << path;
  EXPECT_FALSE(read_key_file("/" + std::string(1 << 20, 'a') + "/mccl-key-x"));
}

TEST_F(KeyFileTest, AcceptsOnlyARandomPartAsName) {
  const KeyFile file(folders_);
  const std::string name(file.name());
  ASSERT_EQ(name.size(), kKeyFileLetters);
  fs::create_symlink(folder_.path(), folder_.path() + "/mccl-key-x");
  for (const std::string& other :
       {std::string(), name.substr(1), name + "0", "x/mccl-key-" + name,
        "x/../" + std::string(kKeyFileLetters - 5, '0'), std::string(kKeyFileLetters, '-'),
        std::string(kKeyFileLetters, '\0'), std::string(kKeyFileLetters, '0')})
    EXPECT_FALSE(find_key_file(folders_, other)) << other;
  EXPECT_TRUE(find_key_file(folders_, name));
}

TEST_F(KeyFileTest, AFileOfAKilledProcessIsRemovedByTheNext) {
  // More files than one process removes. Those of live processes must not count.
  std::vector<std::unique_ptr<const KeyFile>> live;
  for (int i = 0; i < 40; ++i) live.push_back(std::make_unique<const KeyFile>(folders_));
  const pid_t child = ::fork();
  if (child == 0) {
    const KeyFile left_over(folders_);
    ::_exit(left_over.path().empty() ? 1 : 0);  // runs no destructor
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const auto files = [&] {
    return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
  };
  ASSERT_EQ(files(), 41);
  const KeyFile next(folders_);
  EXPECT_EQ(files(), 41) << "only the file of the killed process must be removed";
  for (const auto& file : live) EXPECT_TRUE(read_key_file(file->path()));
}

TEST_F(KeyFileTest, ForkedChildrenLeaveTheFileOfTheirParent) {
  auto file = std::make_unique<const KeyFile>(folders_);
  const pid_t child = ::fork();
  if (child == 0) {
    file.reset();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(read_key_file(file->path()));
}

TEST_F(KeyFileTest, ASecretIsForOnePort) {
  const SecretBytes key = make_job_key();
  EXPECT_EQ(same_user_secret(key, 1), same_user_secret(key, 1));
  EXPECT_NE(same_user_secret(key, 1), same_user_secret(key, 2));
  EXPECT_NE(same_user_secret(key, 1), same_user_secret(make_job_key(), 1));
}

}  // namespace
}  // namespace mccl::rendezvous
