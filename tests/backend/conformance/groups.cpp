// Checks subgroups, coalesced calls, callbacks, arguments, aborts and time limits.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "backend/conformance/checks.h"

namespace mccl::conformance {
namespace {

Buffer buffer(std::vector<float>& data) { return {data.data(), data.size(), DType::f32}; }

std::vector<int> everyone(const Context& context) {
  std::vector<int> ranks;
  for (int rank = 0; rank < context.size(); ++rank) ranks.push_back(rank);
  return ranks;
}

void all_reduce(Group& group, std::size_t count, const CallOptions& options = {}) {
  std::vector<float> data(count, 1);
  group.all_reduce(buffer(data), buffer(data), ReduceKind::sum, options).wait();
}

void split_by_color_and_key(Context& context) {
  const int rank = context.rank();
  const int evens = (context.size() + 1) / 2;
  const int odds = context.size() / 2;
  for (int round = 0; round < 3; ++round) {
    const auto part = context.world()->split(rank % 2, -rank);
    ASSERT_EQ(part->size(), rank % 2 ? odds : evens);
    ASSERT_EQ(part->rank(), (part->size() - 1) - rank / 2);  // sorted by key, which is -rank
    std::vector<float> data(1000, 1);
    part->all_reduce(buffer(data), buffer(data), ReduceKind::sum).wait();
    ASSERT_EQ(data, std::vector<float>(1000, static_cast<float>(part->size())));
    const auto single = part->split(part->rank(), 0);
    ASSERT_EQ(single->size(), 1);
    single->barrier().wait();
    ASSERT_EQ(context.world()->split(rank == 0 ? 1 : -1, 0) == nullptr, rank != 0);
  }
}

void overlap_and_do_not_block_one_another(Context& context) {
  const int rank = context.rank();
  // Rank 0 makes the pair's call after the world's; rank 1 makes it before.
  std::shared_ptr<Group> pair;
  if (rank < 2) pair = context.group("pair", {0, 1}, std::chrono::seconds(30));
  std::vector<float> a(100'000, 1);
  std::vector<float> b(100'000, 1);
  std::vector<Work> works;
  if (rank == 1) works.push_back(pair->all_reduce(buffer(b), buffer(b), ReduceKind::sum));
  works.push_back(context.world()->all_reduce(buffer(a), buffer(a), ReduceKind::sum));
  if (rank == 0) works.push_back(pair->all_reduce(buffer(b), buffer(b), ReduceKind::sum));
  for (const Work& work : works) work.wait();
  ASSERT_EQ(a[99'999], static_cast<float>(context.size()));
  if (rank < 2) {
    ASSERT_EQ(b[99'999], 2);
  }
}

void concurrent_callers_of_different_groups(Context& context) {
  std::vector<std::shared_ptr<Group>> groups;
  for (int i = 0; i < 4; ++i) {
    groups.push_back(
        context.group("g" + std::to_string(i), everyone(context), std::chrono::seconds(30)));
  }
  std::vector<std::thread> threads;
  for (const auto& group : groups) {
    threads.emplace_back([&group] {
      for (int i = 0; i < 50; ++i) {
        std::vector<float> data(static_cast<std::size_t>(i) * 100 + 1, 1);
        group->all_reduce(buffer(data), buffer(data), ReduceKind::sum, {.caller_waits = i % 2 == 0})
            .wait();
        EXPECT_EQ(data.back(), static_cast<float>(group->size()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void coalesced_calls_are_one_work(Context& context) {
  Group& group = *context.world();
  const auto size = static_cast<float>(group.size());
  std::vector<float> a(10, 1);
  std::vector<float> b(5000, 2);
  float token = 3;
  float got = 0;
  group.begin_coalescing();
  EXPECT_THROW(group.begin_coalescing(), InvalidArgument);
  const Work first = group.all_reduce(buffer(a), buffer(a), ReduceKind::sum);
  EXPECT_THROW(first.wait(), InvalidArgument);
  EXPECT_FALSE(first.done());
  group.all_reduce(buffer(b), buffer(b), ReduceKind::sum);
  group.send({&token, 1, DType::f32}, (group.rank() + 1) % group.size(), 0);
  group.recv({&got, 1, DType::f32}, (group.rank() + group.size() - 1) % group.size(), 0);
  const Work work = group.end_coalescing();
  work.wait();
  ASSERT_TRUE(work.done());
  first.wait();
  ASSERT_EQ(a[9], size);
  ASSERT_EQ(b[4999], 2 * size);
  ASSERT_EQ(got, 3);
  EXPECT_THROW(group.end_coalescing(), InvalidArgument);
}

void callbacks_run_once_and_may_start_calls(Context& context) {
  Group& group = *context.world();
  for (const std::size_t count : {std::size_t{1000}, std::size_t{1'000'000}}) {
    std::vector<float> a(count, 1);
    std::vector<float> b(count, 1);
    std::atomic<int> calls = 0;
    std::atomic<bool> second_done = false;
    const Work first = group.all_reduce(buffer(a), buffer(a), ReduceKind::sum);
    first.on_done([&](std::exception_ptr error) {
      EXPECT_EQ(error, nullptr);
      ++calls;
      // Makes another call inside the callback and waits for it, as a DDP hook does.
      group.all_reduce(buffer(b), buffer(b), ReduceKind::sum).wait();
      second_done = true;
    });
    first.wait();
    while (!second_done) std::this_thread::yield();
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(b[0], static_cast<float>(group.size()));
    first.on_done([&](std::exception_ptr) { ++calls; });
    EXPECT_EQ(calls, 2);
  }
}

/// A call ends even if no thread waits for it.
void calls_go_on_without_a_waiter(Context& context) {
  Group& group = *context.world();
  std::vector<float> data(200'000, 1);
  const Work work = group.all_reduce(buffer(data), buffer(data), ReduceKind::sum);
  while (!work.done()) std::this_thread::yield();
  EXPECT_EQ(data[0], static_cast<float>(group.size()));
}

void a_wait_that_times_out_leaves_the_call_running(Context& context) {
  Group& group = *context.world();
  std::vector<float> value(1, 1);
  if (group.rank() == 0) {
    const Work work = group.all_reduce(buffer(value), buffer(value), ReduceKind::sum);
    EXPECT_THROW(work.wait(std::chrono::milliseconds(20)), TimeoutError);
    char token = 1;
    for (int peer = 1; peer < group.size(); ++peer) group.send({&token, 1, DType::u8}, peer, 0);
    work.wait();
  } else {
    char token = 0;
    group.recv({&token, 1, DType::u8}, 0, 0).wait();
    group.all_reduce(buffer(value), buffer(value), ReduceKind::sum).wait();
  }
  EXPECT_EQ(value[0], static_cast<float>(group.size()));
}

void arguments_are_checked_before_anything_is_sent(Context& context) {
  Group& group = *context.world();
  float values[4] = {};
  constexpr DType kType = DType::f32;
  const Buffer four{values, 4, kType};
  const Buffer two{values, 2, kType};
  EXPECT_THROW(group.all_reduce(four, two, ReduceKind::sum), InvalidArgument);
  EXPECT_THROW(group.all_reduce(four, {values + 1, 3, kType}, ReduceKind::sum), InvalidArgument);
  EXPECT_THROW(group.all_reduce(four, four, ReduceKind::bxor), InvalidArgument);
  EXPECT_THROW(group.all_reduce({nullptr, 1, kType}, {values, 1, kType}, ReduceKind::sum),
               InvalidArgument);
  EXPECT_THROW(group.broadcast(four, group.size()), InvalidArgument);
  EXPECT_THROW(group.send(four, group.size(), 0), InvalidArgument);
  EXPECT_THROW(group.send(four, group.rank(), 0), InvalidArgument);
  EXPECT_THROW(group.recv({values, 4, kType, {DeviceKind::cuda, 0}}, kAnySource, 0),
               InvalidArgument);
  EXPECT_THROW(group.all_gather(two, two), InvalidArgument);
  EXPECT_THROW(context.group("strangers", {context.size()}, std::chrono::seconds(1)),
               InvalidArgument);
  all_reduce(group, 100);  // the refused calls must not fail the group
}

void an_abort_reaches_every_rank_and_no_other_group(Context& context) {
  // Repeated, because the announcement may or may not arrive before another rank makes the group.
  for (int round = 0; round < 20; ++round) {
    const auto other = context.group(fmt::format("aborted {}", round), everyone(context),
                                     std::chrono::seconds(30));
    if (context.rank() == 0) other->abort("the loss is not a number");
    EXPECT_THROW(
        {
          for (;;) all_reduce(*other, 4);
        },
        AbortedError);
    EXPECT_THROW(all_reduce(*other, 4), AbortedError);
    EXPECT_NE(other->failure().find("the loss is not a number"), std::string::npos);
    EXPECT_NE(other->failure().find("rank 0"), std::string::npos) << other->failure();
  }
  all_reduce(*context.world(), 1000);
}

/// Each rank in turn aborts a call in flight. The call is large enough to use every way in which a
/// backend moves data. Its memory must not be written after the call has ended, and other groups
/// must go on.
void an_abort_leaves_the_memory_of_large_calls_alone(Context& context) {
  constexpr std::size_t kCount = 1'000'000;
  Group& world = *context.world();
  std::vector<float> data(kCount);
  for (int round = 0; round < 20; ++round) {
    const auto other = context.group(fmt::format("large aborted {}", round), everyone(context),
                                     std::chrono::seconds(30));
    const int breaker = round % context.size();
    std::fill(data.begin(), data.end(), 1.0F);
    const Work work = other->all_reduce(buffer(data), buffer(data), ReduceKind::sum);
    char token = 1;
    if (context.rank() != breaker) world.send({&token, 1, DType::u8}, breaker, 0).wait();
    for (int peer = 1; context.rank() == breaker && peer < context.size(); ++peer) {
      world.recv({&token, 1, DType::u8}, kAnySource, 0).wait();
    }
    if (context.rank() == breaker) other->abort("enough");
    try {
      work.wait();
    } catch (const AbortedError&) {
    }
    std::fill(data.begin(), data.end(), -1.0F);
    world.barrier().wait();
    ASSERT_EQ(std::count(data.begin(), data.end(), -1.0F), kCount) << "round " << round;
  }
}

void a_call_that_others_do_not_join_times_out(Context& context) {
  const auto other = context.group("late", everyone(context), std::chrono::seconds(30));
  all_reduce(*other, 4);
  if (context.rank() == 0) {
    EXPECT_THROW(all_reduce(*other, 4, {.timeout = std::chrono::milliseconds(100)}), TimeoutError);
  }
  while (other->failure().empty()) std::this_thread::yield();
  EXPECT_NE(other->failure().find("timed out"), std::string::npos) << other->failure();
  EXPECT_NE(other->failure().find("rank 0"), std::string::npos) << other->failure();
  EXPECT_THROW(all_reduce(*other, 4), TimeoutError);
  all_reduce(*context.world(), 1000);
}

void metrics_count_calls(Context& context) {
  const MetricsSummary before = context.metrics()->summary();
  for (int i = 0; i < 40; ++i) all_reduce(*context.world(), 10, {.caller_waits = true});
  for (int i = 0; i < 3; ++i) all_reduce(*context.world(), 100'000);
  EXPECT_EQ(context.metrics()->summary().total_ops - before.total_ops, 43u);
}

constexpr Check kChecks[] = {
    {"SplitByColorAndKey", 2, split_by_color_and_key},
    {"OverlapAndDoNotBlockOneAnother", 2, overlap_and_do_not_block_one_another},
    {"ConcurrentCallersOfDifferentGroups", 1, concurrent_callers_of_different_groups},
    {"CoalescedCallsAreOneWork", 2, coalesced_calls_are_one_work},
    {"CallbacksRunOnceAndMayStartCalls", 1, callbacks_run_once_and_may_start_calls},
    {"CallsGoOnWithoutAWaiter", 1, calls_go_on_without_a_waiter},
    {"AWaitThatTimesOutLeavesTheCallRunning", 2, a_wait_that_times_out_leaves_the_call_running},
    {"ArgumentsAreCheckedBeforeAnythingIsSent", 2, arguments_are_checked_before_anything_is_sent},
    {"AnAbortReachesEveryRankAndNoOtherGroup", 2, an_abort_reaches_every_rank_and_no_other_group},
    {"AnAbortLeavesTheMemoryOfLargeCallsAlone", 2, an_abort_leaves_the_memory_of_large_calls_alone},
    {"ACallThatOthersDoNotJoinTimesOut", 2, a_call_that_others_do_not_join_times_out},
    {"MetricsCountCalls", 1, metrics_count_calls},
};

}  // namespace

std::span<const Check> group_checks() { return kChecks; }

}  // namespace mccl::conformance
