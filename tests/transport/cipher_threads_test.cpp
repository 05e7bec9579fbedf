// Tests the threads that work on batches of records.
#include "transport/tcp/cipher_threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>

namespace mccl::transport::tcp {
namespace {

TEST(CipherThreads, UseTheCoresThatTheRanksLeave) {
  EXPECT_EQ(CipherThreads::count_for(8), 0u);
  EXPECT_EQ(CipherThreads::count_for(1), 0u);
  EXPECT_EQ(CipherThreads::count_for(0.7), 0u);
  EXPECT_EQ(CipherThreads::count_for(0.5), 1u);
  EXPECT_EQ(CipherThreads::count_for(0.25), 3u);
  EXPECT_EQ(CipherThreads::count_for(0.01), CipherThreads::kMostThreads);
  EXPECT_EQ(CipherThreads::count_for(0), CipherThreads::kMostThreads);
}

void process_batches(CipherThreads* threads, int batches) {
  std::array<int, CipherThreads::kMostRecords> processed{};
  for (int round = 1; round <= batches; ++round) {
    const std::size_t count = static_cast<std::size_t>(round) % (processed.size() + 1);
    processed.fill(0);
    {
      CipherThreads::Batch batch(threads, count, [&](std::size_t lane, std::size_t index) {
        EXPECT_LT(lane, threads == nullptr ? 1 : threads->lanes());
        ++processed[index];
      });
      if (round % 3 == 0) batch.help();
      EXPECT_LE(batch.processed(), count);
    }
    for (std::size_t i = 0; i < processed.size(); ++i)
      ASSERT_EQ(processed[i], i < count ? 1 : 0) << "round " << round << ", record " << i;
  }
}

TEST(CipherThreads, ProcessEachRecordOnce) {
  for (std::size_t count = 0; count <= CipherThreads::kMostThreads; ++count) {
    CipherThreads threads(count);
    process_batches(&threads, 2000);
  }
  process_batches(nullptr, 100);
}

/// A child has no threads to join.
TEST(CipherThreads, EndInTheChildOfAFork) {
  auto threads = std::make_unique<CipherThreads>(2);
  process_batches(threads.get(), 40);
  const pid_t child = ::fork();
  if (child == 0) {
    threads.reset();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace mccl::transport::tcp
