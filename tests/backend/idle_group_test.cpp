// Tests that a group without recent calls releases its plans and scratch memory. The test controls
// the clock, so that plans are released exactly at the group's next call.
#include <malloc.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>

#include "support/processes.h"

namespace {
std::atomic<std::time_t> seconds_ahead{0};
}

/// Replaces the C library's function for every clock of this program, including those of
/// std::chrono.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
  now->tv_sec += seconds_ahead.load(std::memory_order_relaxed);
  return result;
}

namespace mccl {
namespace {

using testing::Processes;
using testing::test_config;

constexpr std::chrono::seconds kABeat{3};  // longer than a heartbeat period (see config_of)
constexpr std::chrono::seconds kIdle{11};  // longer than an idle group keeps its plans
constexpr int kCallsBetweenLooks = 16;     // one of these calls reads the clock

void go_ahead(std::chrono::seconds time) { seconds_ahead += time.count(); }

Config config_of(int) {
  Config config = test_config();
  config.calibrate = false;
  config.liveness_interval = 10;
  return config;
}

/// Checks a small all_reduce, which runs on the caller's own thread if possible.
void expect_sum(Group& group, float addend) {
  CallOptions options;
  options.caller_waits = true;
  float sum[4] = {addend, addend, addend, addend};
  const Buffer buffer{sum, 4, DType::f32};
  group.all_reduce(buffer, buffer, ReduceKind::sum, options).wait();
  for (const float element : sum) {
    if (element != addend * static_cast<float>(group.size())) throw Error("a wrong sum");
  }
}

TEST(AnIdleGroup, KeepsThePlanOfTheNextCall) {
  Processes job(2,
                [](Context& context, const Processes::Say&) {
                  // Overwrites freed memory, so that use of a freed plan fails.
                  ::mallopt(M_PERTURB, 0x5a);
                  const std::shared_ptr<Group> busy = context.world()->split(0, context.rank());
                  // A round has 17 calls, and every 16th call reads the clock. So in some round the
                  // world's call reads the clock.
                  for (int round = 1; round <= 3 * kCallsBetweenLooks; ++round) {
                    go_ahead(kABeat);  // a heartbeat records the world's last call
                    for (int i = 0; i < kCallsBetweenLooks; ++i) expect_sum(*busy, 1);
                    go_ahead(kIdle);
                    expect_sum(*context.world(), static_cast<float>(round));
                  }
                },
                {.store_address = {}, .config_of = config_of, .enter = {}, .at_the_store = {}});
  job.expect_good_end();
}

/// The scratch memory of a large call is released when its group is idle.
TEST(AnIdleGroup, ReleasesItsScratchMemory) {
  constexpr int kRanks = 3;
  Processes job(kRanks,
                [](Context& context, const Processes::Say& say) {
                  constexpr std::size_t kPart = 1 << 20;
                  std::vector<float> all(kRanks * kPart, 1), part(kPart);
                  context.world()
                      ->reduce_scatter({all.data(), all.size(), DType::f32},
                                       {part.data(), part.size(), DType::f32}, ReduceKind::sum)
                      .wait();
                  const auto staging = [&] { return context.metrics()->summary().staging_bytes; };
                  const std::shared_ptr<Group> busy = context.world()->split(0, context.rank());
                  const auto a_call_of_another_group = [&] {
                    float one[1] = {1};
                    const Buffer small{one, 1, DType::f32};
                    busy->all_reduce(small, small, ReduceKind::sum).wait();
                  };
                  a_call_of_another_group();
                  go_ahead(kABeat);
                  a_call_of_another_group();
                  const std::uint64_t with_another_group = staging();
                  go_ahead(kIdle);
                  a_call_of_another_group();
                  say(staging() + (std::uint64_t{1} << 20) <= with_another_group
                          ? "less"
                          : "as much: " + std::to_string(staging()) + " after " +
                                std::to_string(with_another_group));
                  context.world()->barrier().wait();
                },
                {.store_address = {},
                 .config_of =
                     [](int rank) {
                       Config config = config_of(rank);
                       config.transport = "tcp";
                       config.algorithm = "ring";
                       return config;
                     },
                 .enter = {},
                 .at_the_store = {}});
  for (const int rank : {0, 1, 2}) EXPECT_EQ(job.line(rank), "less") << rank;
  job.expect_good_end();
}

}  // namespace
}  // namespace mccl
