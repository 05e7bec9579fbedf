// Tests that errors keep their types between a program and the shared library. This program links
// nothing else of MCCL.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "mccl/mccl.h"

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSoon{20};

/// The contexts of two ranks, which are threads of this process.
std::array<std::shared_ptr<mccl::Context>, 2> two_ranks() {
  const auto store = mccl::make_memory_store();
  const auto join = [store](int rank) {
    mccl::ContextOptions options;
    options.rank = rank;
    options.size = 2;
    options.store = store;
    options.config.port_base = 0;
    options.config.calibrate = false;
    return mccl::Context::create(options);
  };
  auto other = std::async(std::launch::async, join, 1);
  return {join(0), other.get()};
}

mccl::Buffer buffer_of(std::vector<float>& values) { return {values.data(), values.size()}; }

TEST(Errors, InvalidArgument) {
  mccl::Config config;
  EXPECT_THROW(config.set("no such setting", "1"), mccl::InvalidArgument);
}

TEST(Errors, Timeout) {
  const auto store = mccl::make_memory_store();
  EXPECT_THROW(store->get("no such key", kSoon), mccl::TimeoutError);
}

TEST(Errors, Mismatch) {
  const auto ranks = two_ranks();
  std::array<std::vector<float>, 2> values = {std::vector<float>(4), std::vector<float>(8)};
  std::array<mccl::Work, 2> works;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const mccl::Buffer buffer = buffer_of(values[rank]);
    works[rank] = ranks[rank]->world()->all_reduce(buffer, buffer, mccl::ReduceKind::sum);
  }
  for (const mccl::Work& work : works) EXPECT_THROW(work.wait(), mccl::MismatchError);
}

TEST(Errors, Aborted) {
  const auto ranks = two_ranks();
  std::vector<float> values(4);
  const mccl::Work work = ranks[0]->world()->recv(buffer_of(values), 1, 0);
  ranks[1]->world()->abort("a test");
  EXPECT_THROW(work.wait(), mccl::AbortedError);
}

TEST(Errors, Peer) {
  const auto ranks = two_ranks();
  std::vector<float> values(4);
  const mccl::Work work = ranks[0]->world()->recv(buffer_of(values), 1, 0);
  ranks[1]->shutdown();
  EXPECT_THROW(work.wait(), mccl::PeerError);
}

/// Checks that the library passes on an exception that the program's function throws.
template <typename Thrown>
void expect_to_pass() {
  const auto ranks = two_ranks();
  std::vector<float> values(4);
  const mccl::Work work = ranks[0]->world()->recv(buffer_of(values), 1, 0);
  EXPECT_THROW(work.wait_in_slices({}, kSoon, [] { throw Thrown("of the program"); }), Thrown);
}

TEST(Errors, OfTheProgramPassThroughTheLibrary) {
  expect_to_pass<mccl::Error>();
  expect_to_pass<mccl::CorruptionError>();
}

/// A store in the program. The library must recognise the type of the error that it throws.
class EmptyStore final : public mccl::Store {
 public:
  void set(const std::string&, std::string_view) override {}
  std::string get(const std::string& key, milliseconds) override {
    throw mccl::TimeoutError("no " + key);
  }
  std::int64_t add(const std::string&, std::int64_t amount) override { return amount; }
};

TEST(Errors, OfTheProgramAreKnownToTheLibrary) {
  mccl::ContextOptions options;
  options.rank = 1;
  options.size = 2;
  options.store = std::make_shared<EmptyStore>();
  options.config.connect_timeout = 1;
  EXPECT_THROW(mccl::Context::create(options), mccl::Error);
}

}  // namespace
