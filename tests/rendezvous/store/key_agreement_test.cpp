#include "rendezvous/store/key_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "mccl/error.h"
#include "rendezvous/connections/proof.h"
#include "rendezvous/store/memory_store.h"
#include "support/folder.h"

namespace mccl::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// One rank's view of the store, in which a stranger may have altered values.
class SeenStore final : public Store {
 public:
  using Change = std::function<std::string(const std::string& key, const std::string& value)>;

  explicit SeenStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, std::string_view value) override {
    const std::string changed = on_set ? on_set(key, std::string(value)) : std::string(value);
    values.push_back(changed);
    store_->set(key, changed);
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    const std::string value = store_->get(key, timeout);
    return on_get ? on_get(key, value) : value;
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    return store_->add(key, amount);
  }

  Change on_set, on_get;
  std::vector<std::string> values;  ///< Every value that was set.

 private:
  std::shared_ptr<Store> store_;
};

/// Ranks that agree on a key; each is a thread.
struct Agreed {
  explicit Agreed(int size, const std::string& require_key = "auto") : keys(size), errors(size) {
    const std::shared_ptr<Store> store = make_memory_store();
    for (int rank = 0; rank < size; ++rank) stores.push_back(std::make_unique<SeenStore>(store));
    configs.resize(static_cast<std::size_t>(size));
    for (Config& config : configs) {
      config.connect_timeout = 20;
      config.require_key = require_key;
    }
  }

  void run() {
    ::testing::internal::CaptureStderr();
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < keys.size(); ++rank)
      threads.emplace_back([this, rank] { agree(rank); });
    for (std::thread& thread : threads) thread.join();
    said = ::testing::internal::GetCapturedStderr();
  }

  void agree(std::size_t rank) {
    try {
      const Log log(static_cast<int>(rank), LogLevel::warn);
      keys[rank] = agree_on_key({static_cast<int>(rank),
                                 static_cast<int>(keys.size()),
                                 configs[rank],
                                 *stores[rank],
                                 log,
                                 Clock::now() + patience,
                                 {folder.path()}});
    } catch (const std::exception& error) {
      errors[rank] = error.what();
    }
  }

  std::size_t times_said(const std::string& text) const {
    std::size_t times = 0;
    for (std::size_t at = said.find(text); at != said.npos; at = said.find(text, at + 1)) ++times;
    return times;
  }

  mccl::testing::Folder folder;
  std::vector<std::unique_ptr<SeenStore>> stores;
  std::vector<Config> configs;
  std::vector<std::string> keys;
  std::vector<std::string> errors;
  std::string said;
  Clock::duration patience = 20s;
};

/// Alters the path that rank 0 published, as if the rank were on another machine.
std::string elsewhere(const std::string& key, const std::string& value) {
  return key.find(kServersOwn) != key.npos && value.find("/mccl-key-") != value.npos
             ? value + "-not-here"
             : value;
}

TEST(KeyAgreement, NeverStoresAKeyThatIsSharedThroughAFile) {
  Agreed ranks(4);
  ranks.run();
  EXPECT_THAT(ranks.errors, Each(IsEmpty()));
  EXPECT_THAT(ranks.keys, Each(ranks.keys[0]));
  EXPECT_EQ(ranks.keys[0].size(), kJobKeyLetters);
  for (const auto& store : ranks.stores)
    EXPECT_THAT(store->values, Each(Not(HasSubstr(ranks.keys[0]))));
  EXPECT_EQ(ranks.said, "");
  EXPECT_TRUE(ranks.folder.empty()) << "the key file was not removed";
}

TEST(KeyAgreement, ARankThatCannotReadTheFileMakesEveryRankRaise) {
  Agreed ranks(3);
  ranks.stores[2]->on_get = elsewhere;
  ranks.run();
  for (const std::string& error : ranks.errors) {
    EXPECT_THAT(error, HasSubstr("rank 2 cannot read rank 0's key file"));
    EXPECT_THAT(error, HasSubstr("export MCCL_JOB_KEY=$(openssl rand -hex 32)"));
    EXPECT_THAT(error, HasSubstr("MCCL_REQUIRE_KEY=0"));
  }
  EXPECT_THAT(ranks.keys, Each(""));
  EXPECT_EQ(ranks.said, "");
  EXPECT_TRUE(ranks.folder.empty());
}

TEST(KeyAgreement, ARankThatRequiresProofRefusesAPublishedKey) {
  Agreed ranks(2, "0");
  ranks.configs[1].require_key = "auto";
  ranks.stores[1]->on_get = elsewhere;
  ranks.run();
  EXPECT_THAT(ranks.errors[1], HasSubstr("MCCL_REQUIRE_KEY=0"));
  EXPECT_EQ(ranks.keys[1], "");
}

TEST(KeyAgreement, WithoutARequiredKeyARankThatCannotReadTheFileMakesEveryRankWarn) {
  Agreed ranks(3, "0");
  ranks.stores[2]->on_get = elsewhere;
  ranks.run();
  EXPECT_THAT(ranks.errors, Each(IsEmpty()));
  EXPECT_THAT(ranks.keys, Each(ranks.keys[0]));
  EXPECT_EQ(ranks.times_said("rank 2 cannot read"), 3u) << ranks.said;
  for (const char* part : {"can join", "MCCL_JOB_KEY", "openssl rand"})
    EXPECT_THAT(ranks.said, HasSubstr(part));
  EXPECT_TRUE(ranks.folder.empty());
}

TEST(KeyAgreement, RemovesAPublishedKeyAfterTheMeeting) {
  Agreed ranks(2, "0");
  ranks.stores[1]->on_get = elsewhere;
  ranks.run();
  const std::string name = std::string(kServersOwn) + "key";
  EXPECT_THAT(ranks.stores[0]->get(name, 1ms), HasSubstr(ranks.keys[0]));
  take_back_key(ranks.configs[1], 1, *ranks.stores[1]);
  EXPECT_THAT(ranks.stores[0]->get(name, 1ms), HasSubstr(ranks.keys[0]));
  take_back_key(ranks.configs[0], 0, *ranks.stores[0]);
  EXPECT_THAT(ranks.stores[0]->get(name, 1ms), Not(HasSubstr(ranks.keys[0])));
}

TEST(KeyAgreement, WithoutAFolderForTheFileTheKeyIsPublished) {
  Agreed ranks(2, "0");
  std::filesystem::remove(ranks.folder.path());
  ranks.run();
  EXPECT_THAT(ranks.errors, Each(IsEmpty()));
  EXPECT_EQ(ranks.keys[0], ranks.keys[1]);
  EXPECT_THAT(ranks.said, HasSubstr("rank 1 cannot read"));
}

TEST(KeyAgreement, WithoutAFolderForTheFileRankZeroSaysSo) {
  Agreed ranks(2);
  std::filesystem::remove(ranks.folder.path());
  ranks.agree(0);
  EXPECT_THAT(ranks.errors[0], HasSubstr("cannot write a key file"));
  EXPECT_THAT(ranks.errors[0], HasSubstr(ranks.folder.path()));
  EXPECT_THAT(ranks.stores[0]->values, IsEmpty());
}

TEST(KeyAgreement, DetectsAForgedAnswer) {
  Agreed ranks(3);
  ranks.stores[1]->on_set = [](const std::string&, const std::string&) { return "no"; };
  ranks.run();
  EXPECT_THAT(ranks.errors[1], HasSubstr("MCCL_JOB_KEY"));
  EXPECT_THAT(ranks.errors[1], HasSubstr("rank 1"));
  EXPECT_EQ(ranks.keys[1], "");
  Agreed others(2);
  others.stores[1]->on_get = elsewhere;
  others.stores[1]->on_set = [](const std::string&, const std::string&) { return "yes"; };
  others.run();
  EXPECT_THAT(others.errors[1], HasSubstr("MCCL_JOB_KEY"));
}

TEST(KeyAgreement, RefusesAFileWithAnotherKey) {
  Agreed ranks(2, "0");
  mccl::testing::Folder others;
  const std::vector<std::string> folders = {others.path()};
  const KeyFile file(folders);
  ranks.stores[1]->on_get = [&](const std::string&, const std::string& value) {
    const std::size_t path = value.find("\n/");
    return path == value.npos ? value : value.substr(0, path + 1) + file.path();
  };
  ranks.run();
  EXPECT_EQ(ranks.keys[0], ranks.keys[1]);
  EXPECT_THAT(ranks.said, HasSubstr("rank 1 cannot read"));
}

TEST(KeyAgreement, AKeyThatWasSetNeedsNoStore) {
  Agreed ranks(3);
  for (Config& config : ranks.configs) config.job_key = "sixteen letters!";
  ranks.run();
  EXPECT_THAT(ranks.keys, Each("sixteen letters!"));
  for (const auto& store : ranks.stores) EXPECT_THAT(store->values, IsEmpty());
}

TEST(KeyAgreement, RequireKeyPublishesNothingWithoutOne) {
  Agreed ranks(2);
  for (Config& config : ranks.configs) config.require_key = "1";
  ranks.run();
  for (const std::string& error : ranks.errors) {
    EXPECT_THAT(error, HasSubstr("MCCL_REQUIRE_KEY"));
    EXPECT_THAT(error, HasSubstr("openssl rand"));
  }
  for (const auto& store : ranks.stores) EXPECT_THAT(store->values, IsEmpty());
  Config config;
  config.require_key = "1";
  EXPECT_NO_THROW(check_required_key(config, 0, 1)) << "a job of one rank needs no key";
  config.job_key = "sixteen letters!";
  EXPECT_NO_THROW(check_required_key(config, 0, 2));
}

TEST(KeyAgreement, EncryptionNeedsAKey) {
  Agreed ranks(2, "0");
  for (Config& config : ranks.configs) config.encryption = "on";
  ranks.run();
  for (const std::string& error : ranks.errors) EXPECT_THAT(error, HasSubstr("MCCL_ENCRYPTION"));
  for (const auto& store : ranks.stores) EXPECT_THAT(store->values, IsEmpty());
}

TEST(KeyAgreement, AMissingRankIsNamed) {
  Agreed ranks(3);
  ranks.patience = 50ms;
  ranks.agree(0);
  EXPECT_THAT(ranks.errors[0], HasSubstr("rank 1"));
  EXPECT_THAT(ranks.errors[0], HasSubstr("MCCL_CONNECT_TIMEOUT"));
  EXPECT_TRUE(ranks.folder.empty());
}

}  // namespace
}  // namespace mccl::rendezvous
