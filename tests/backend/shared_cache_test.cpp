#include "backend/native/shared_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace mccl {
namespace {

namespace fs = std::filesystem;

/// A folder with the layout of /sys/devices/system/cpu.
class Cpus : public ::testing::Test {
 protected:
  Cpus() { fs::create_directories(root_); }
  ~Cpus() override { fs::remove_all(root_); }

  void add(int cpu, int depth, const std::string& size, const std::string& shared_by) const {
    const fs::path cache =
        root_ / fmt::format("cpu{}", cpu) / "cache" / fmt::format("index{}", depth);
    fs::create_directories(cache);
    std::ofstream(cache / "size") << size << "\n";
    std::ofstream(cache / "shared_cpu_list") << shared_by << "\n";
  }

  const fs::path root_ = fs::temp_directory_path() / fmt::format("mccl cpus {}", ::getpid());
};

TEST_F(Cpus, CachesOfTheLastLevelAreAddedUp) {
  for (const int cpu : {0, 1, 2, 3}) {
    add(cpu, 2, "1024K", std::to_string(cpu));
    add(cpu, 3, "32768K", cpu < 2 ? "0-1" : "2-3");
  }
  EXPECT_EQ(shared_cache_bytes_in(root_.string()), std::size_t{64} << 20);
}

TEST_F(Cpus, WithoutAThirdLevelTheSecondCounts) {
  add(0, 1, "64K", "0");
  add(0, 2, "12M", "0-3");
  add(1, 2, "12M", "0-3");
  EXPECT_EQ(shared_cache_bytes_in(root_.string()), std::size_t{12} << 20);
}

TEST_F(Cpus, IgnoresUnreadableFiles) {
  add(0, 3, "large", "0");
  EXPECT_EQ(shared_cache_bytes_in(root_.string()), 0u);
  EXPECT_EQ(shared_cache_bytes_in((root_ / "none").string()), 0u);
  EXPECT_GT(shared_cache_bytes(), 0u);
}

}  // namespace
}  // namespace mccl
