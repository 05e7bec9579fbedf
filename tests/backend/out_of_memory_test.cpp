// Memory that runs out at one place, in one process. A sanitizer has allocations of its own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "support/processes.h"

namespace {

/// Allocations of this size fail, as if memory had run out; 0: none.
std::atomic<std::size_t> failing_size{0};
/// The allocation of this thread that fails, counted from here; 0: none.
thread_local int failing_in = 0;

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (bytes != 0 && bytes == failing_size.load(std::memory_order_relaxed)) throw std::bad_alloc();
  if (failing_in > 0 && --failing_in == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace mccl {
namespace {

using testing::Processes;
using testing::test_config;

/// A peer's word of a failed group is too long for the memory that is left here.
TEST(OutOfMemory, BesideTheDataEndsTheGroupsAndNotTheProcess) {
  constexpr std::size_t kReason = 1777;
  Processes job(2,
                [](Context& context, const Processes::Say& say) {
                  const auto doomed = context.group("doomed", {0, 1}, std::chrono::seconds(30));
                  context.world()->barrier().wait();
                  if (context.rank() == 0) {
                    char token = 0;
                    context.world()->recv({&token, 1, DType::u8}, 1, 0).wait();
                    doomed->abort(std::string(kReason, 'x'));
                    while (context.world()->failure().empty()) std::this_thread::yield();
                  } else {
                    const std::string text = "rank 0 aborted it: " + std::string(kReason, 'x');
                    failing_size = text.size() + 1;
                    char token = 0;
                    context.world()->send({&token, 1, DType::u8}, 0, 0).wait();
                    while (context.world()->failure().empty()) std::this_thread::yield();
                    failing_size = 0;
                  }
                  say(context.world()->failure());
                },
                {.store_address = {},
                 .config_of =
                     [](int) {
                       Config config = test_config();
                       config.log_level = "OFF";
                       return config;
                     },
                 .enter = {},
                 .at_the_store = {}});
  for (const int rank : {0, 1}) {
    const std::string said = job.line(rank);
    EXPECT_NE(said.find("out of memory"), std::string::npos) << said;
    EXPECT_NE(said.find("rank 1"), std::string::npos) << said;
  }
}

/// Without spinning, a call that its caller has begun goes on with the driver.
/// A call that cannot be made, for want of memory at any point of it, has either failed its group,
/// which the other ranks are told, or nothing has happened, and it can be made again.
class OutOfMemoryWithSpin : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Of, OutOfMemoryWithSpin, ::testing::Values(0, Config().spin_us));

TEST_P(OutOfMemoryWithSpin, AtAnyPointOfACallFailsTheGroupOrLeavesItAsItWas) {
  Processes job(2,
                [](Context& context, const Processes::Say& say) {
                  bool spared = false;
                  int failed = 0;
                  for (int point = 1; !spared; ++point) {
                    const auto group = context.group("point " + std::to_string(point), {0, 1},
                                                     std::chrono::seconds(20));
                    const auto all_reduce = [&](std::size_t count, int failing_point) {
                      std::vector<float> data(count, 1);
                      const Buffer buffer{data.data(), count, DType::f32};
                      CallOptions options;
                      options.caller_waits = true;
                      failing_in = failing_point;
                      group->all_reduce(buffer, buffer, ReduceKind::sum, options).wait();
                    };
                    try {
                      all_reduce(1, 0);
                      all_reduce(1000, context.rank() == 1 ? point : 0);
                      spared = failing_in > 0;
                    } catch (const std::exception&) {
                      failing_in = 0;
                      ++failed;
                      if (group->failure().empty() && context.rank() == 1) all_reduce(1000, 0);
                    }
                    failing_in = 0;
                    const auto agreement = context.group("after " + std::to_string(point), {0, 1},
                                                         std::chrono::seconds(20));
                    char over = spared ? 1 : 0;
                    agreement->broadcast({&over, 1, DType::u8}, 1).wait();
                    spared = over != 0;
                  }
                  say(context.rank() == 0 || failed > 0 ? "well" : "no call failed");
                },
                {.store_address = {},
                 .config_of =
                     [](int) {
                       Config config = test_config();
                       config.log_level = "OFF";
                       config.calibrate = false;
                       config.spin_us = GetParam();
                       return config;
                     },
                 .enter = {},
                 .at_the_store = {}});
  for (const int rank : {0, 1}) EXPECT_EQ(job.line(rank), "well");
  job.expect_good_end();
}

}  // namespace
}  // namespace mccl
#endif
