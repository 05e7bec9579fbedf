// Tests links that cannot be made. The failure of one rank must not be reported as the death of the
// other.
#include <fcntl.h>
#include <sys/resource.h>

#include <fstream>

#include "support/processes.h"

namespace mccl {
namespace {

using testing::Processes;
using testing::test_config;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

Config quiet(const std::string& transport) {
  Config config = test_config();
  config.transport = transport;
  config.calibrate = false;
  config.log_level = "OFF";
  return config;
}

/// Leaves address space for the buffer of a socket, but not for a shared-memory link.
void leave_little_room() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (900 << 10);
  const rlimit limit = {bytes, bytes};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) throw Error("no limit");
}

TEST(UnmappableSharedMemory, BothRanksFallBackToTcp) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs address space of its own";
  for (const int limited : {0, 1}) {
    Processes job(2,
                  [limited](Context& context, const Processes::Say&) {
                    Group& world = *context.world();
                    if (world.rank() == limited) leave_little_room();
                    for (int i = 0; i < 3; ++i) {
                      std::vector<std::int32_t> data(5000, i);
                      const Buffer buffer{data.data(), data.size(), DType::i32};
                      if (world.rank() == 0) world.send(buffer, 1, 0).wait();
                      if (world.rank() == 1) world.recv(buffer, 0, 0).wait();
                      if (data.front() != i || data.back() != i) throw Error("wrong bytes");
                    }
                  },
                  {.store_address = {},
                   .config_of = [](int) { return quiet("auto"); },
                   .enter = {},
                   .at_the_store = {}});
    job.expect_good_end();
  }
}

TEST(UnmappableWindow, IsTheErrorOfTheRankThatCannotMapIt) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs address space of its own";
  Processes job(3,
                [](Context& context, const Processes::Say&) {
                  Group& world = *context.world();
                  if (world.rank() == 1) leave_little_room();
                  world.barrier().wait();
                },
                {.store_address = {},
                 .config_of = [](int) { return quiet("auto"); },
                 .enter = {},
                 .at_the_store = {}});
  for (const int rank : {0, 1, 2}) {
    const std::string error = job.line(rank);
    EXPECT_NE(error.find("on rank 1"), std::string::npos) << rank << ": " << error;
    EXPECT_NE(error.find("cannot map the memory"), std::string::npos) << rank << ": " << error;
    EXPECT_EQ(error.find("is gone"), std::string::npos) << rank << ": " << error;
  }
}

/// Limits descriptors so that the next one cannot be opened.
void leave_no_descriptor() {
  const int next = ::open("/dev/null", O_RDONLY);
  ::close(next);
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<rlim_t>(next);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) throw Error("no limit");
  // Another thread may have closed a lower descriptor meanwhile. This uses up all that are left.
  while (::open("/dev/null", O_RDONLY) >= 0) {
  }
}

/// The higher rank of a pair dials the lower one. Both ranks must name the rank without
/// descriptors, in either case.
TEST(ARankWithoutDescriptors, IsNamedByItselfAndByItsPeer) {
  for (const int limited : {0, 1}) {
    Processes job(2,
                  [limited](Context& context, const Processes::Say&) {
                    Group& world = *context.world();
                    if (world.rank() == limited) leave_no_descriptor();
                    world.barrier().wait();
                  },
                  {.store_address = {},
                   .config_of = [](int) { return quiet("tcp"); },
                   .enter = {},
                   .at_the_store = {}});
    for (const int rank : {0, 1}) {
      const std::string error = job.line(rank);
      const std::string cause =
          "rank " + std::to_string(limited) + " has no file descriptors left: too many open files";
      EXPECT_NE(error.find(cause), std::string::npos) << rank << ": " << error;
      EXPECT_NE(error.find("ulimit -n"), std::string::npos) << rank << ": " << error;
    }
  }
}

/// A shortage that ends before the timeout causes no failure.
TEST(ARankWithoutDescriptors, ConnectsOnceDescriptorsAreFree) {
  for (const int limited : {0, 1}) {
    Processes job(2,
                  [limited](Context& context, const Processes::Say&) {
                    Group& world = *context.world();
                    rlimit before = {};
                    ::getrlimit(RLIMIT_NOFILE, &before);
                    if (world.rank() == limited) leave_no_descriptor();
                    const auto end_shortage = [&] { ::setrlimit(RLIMIT_NOFILE, &before); };
                    world.barrier().wait_in_slices({}, std::chrono::milliseconds(300),
                                                   end_shortage);
                  },
                  {.store_address = {},
                   .config_of = [](int) { return quiet("tcp"); },
                   .enter = {},
                   .at_the_store = {}});
    job.expect_good_end();
  }
}

}  // namespace
}  // namespace mccl
