// Makes allocations of one process fail at chosen points. Excluded from sanitizer builds, which
// replace the allocator.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>
#include <span>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <vector>

#include "support/processes.h"

namespace {

/// Allocations of this size fail. If 0, none fails.
std::atomic<std::size_t> failing_size{0};
/// Counts down this thread's allocations: the one that makes it 0 fails. If 0, none fails.
thread_local int failing_in = 0;
/// Counts down the allocations of all threads: the one that makes it 0 fails. If 0, none fails.
std::atomic<int> failing_anywhere_in{0};

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (bytes != 0 && bytes == failing_size.load(std::memory_order_relaxed)) throw std::bad_alloc();
  if (failing_in > 0 && --failing_in == 0) throw std::bad_alloc();
  if (failing_anywhere_in.load(std::memory_order_relaxed) > 0 &&
      failing_anywhere_in.fetch_sub(1) == 1) {
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace mccl {
namespace {

/// Time for a sweep over all allocations of a call, on a machine that is busy with other tests.
constexpr std::chrono::seconds kPatience{600};

using testing::Processes;
using testing::test_config;

/// This rank has no memory for the text in which its peer announces that a group failed.
TEST(OutOfMemory, InInternalStructuresFailsTheGroupsAndNotTheProcess) {
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
                    const std::string text =
                        "rank 0 aborted the group: " + std::string(kReason, 'x');
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

/// Thrown if a call breaks a rule that must hold even when memory runs out.
class Broken : public std::logic_error {
  using std::logic_error::logic_error;
};

/// One public call, or a few related ones, which a test runs once for each of their allocations
/// with that allocation failing. The calls may read and write only `memory`.
struct Swept {
  const char* name;
  std::function<void(Group& group, std::span<float> memory)> run;
};

const Swept kSwept[] = {
    {"all_reduce",
     [](Group& group, std::span<float> memory) {
       const Buffer data{memory.data(), 1000, DType::f32};
       group.all_reduce(data, data, ReduceKind::sum).wait();
     }},
    {"all_reduce at once",
     [](Group& group, std::span<float> memory) {
       const Buffer data{memory.data(), 1000, DType::f32};
       group.all_reduce(data, data, ReduceKind::sum, {.caller_waits = true}).wait();
     }},
    {"other collectives",
     [](Group& group, std::span<float> memory) {
       const auto part = [&](std::size_t first, std::size_t count) {
         return Buffer{memory.data() + first, count, DType::f32};
       };
       const std::size_t counts[] = {300, 200};
       const auto mine = counts[group.rank()];
       group.broadcast(part(0, 500), 1).wait();
       group.all_gatherv(part(0, mine), part(500, 500), counts).wait();
       group.reduce_scatterv(part(0, 500), part(500, mine), counts, ReduceKind::max).wait();
       group.all_to_all(part(0, 400), part(500, 400)).wait();
       group.reduce(part(0, 500), part(500, 500), {ReduceKind::premul_sum, 2.0}, 0).wait();
       group.gather(part(0, 100), part(500, group.rank() == 0 ? 200 : 0), 0).wait();
       group.barrier().wait();
     }},
    {"collectives of parts",
     [](Group& group, std::span<float> memory) {
       const auto part = [&](std::size_t first, std::size_t count) {
         return Buffer{memory.data() + first, count, DType::f32};
       };
       const bool first = group.rank() == 0;
       const std::size_t counts[] = {300, 200};
       const auto mine = counts[group.rank()];
       const std::size_t received[] = {mine, mine};
       group.all_gather(part(0, 100), part(500, 200)).wait();
       group.reduce_scatter(part(0, 500), part(500, 250), ReduceKind::avg).wait();
       group.scatter(part(0, first ? 400 : 0), part(500, 200), 0).wait();
       group.scatterv(part(0, first ? 500 : 0), part(500, mine), counts, 0).wait();
       group.gatherv(part(0, mine), part(500, first ? 500 : 0), counts, 0).wait();
       group.all_to_allv(part(0, 500), counts, part(500, 2 * mine), received).wait();
     }},
    {"compressed sums",
     [](Group& group, std::span<float> memory) {
       const auto part = [&](std::size_t first, std::size_t count) {
         return Buffer{memory.data() + first, count, DType::f32};
       };
       for (const Codec codec : {Codec::int8, Codec::topk}) {
         CallOptions options;
         options.compression = Compression{codec};
         options.left_out = part(100'000, 50'000);
         group.all_reduce(part(0, 50'000), part(50'000, 50'000), ReduceKind::sum, options).wait();
       }
     }},
    {"callbacks",
     [](Group& group, std::span<float> memory) {
       const Buffer data{memory.data(), 100, DType::f32};
       std::atomic<int> called = 0;
       int asked = 0;
       const Work work = Work::all_of({group.all_reduce(data, data, ReduceKind::sum)});
       try {
         work.on_done([&](const std::exception_ptr&) { ++called; });
         ++asked;
       } catch (const std::bad_alloc&) {
         work.wait();
         throw;
       }
       while (called < asked) std::this_thread::yield();
     }},
    {"messages",
     [](Group& group, std::span<float> memory) {
       const int other = 1 - group.rank();
       const auto part = [&](std::size_t first, std::size_t count) {
         return Buffer{memory.data() + first, count, DType::f32};
       };
       std::vector<Work> works;
       for (const std::size_t count : {std::size_t{10}, std::size_t{150'000}}) {
         works.push_back(group.recv(part(200'000, count), other, 1));
         works.push_back(group.send(part(0, count), other, 1));
         for (const Work& work : works) work.wait();
         works.clear();
       }
     }},
    {"messages that nobody has asked for",
     [](Group& group, std::span<float> memory) {
       const int other = 1 - group.rank();
       const auto part = [&](std::size_t first, std::size_t count) {
         return Buffer{memory.data() + first, count, DType::f32};
       };
       for (std::uint32_t tag = 0; tag < 3; ++tag) group.send(part(0, 100), other, tag).wait();
       for (std::uint32_t tag = 3; tag-- > 0;) group.recv(part(200'000, 100), -1, tag).wait();
     }},
    {"coalesced calls",
     [](Group& group, std::span<float> memory) {
       const Buffer data{memory.data(), 100, DType::f32};
       const Buffer more{memory.data() + 100, 100, DType::f32};
       std::vector<Work> works;
       works.reserve(3);
       bool ends = false;
       try {
         group.begin_coalescing();
         works.push_back(group.all_reduce(data, data, ReduceKind::sum));
         works.push_back(group.all_reduce(more, more, ReduceKind::sum));
         ends = true;
         works.push_back(group.end_coalescing());
       } catch (const std::exception& error) {
         if (ends && !works.front().done()) throw Broken("end_coalescing threw, and its calls run");
         group.abort(error.what());
       }
       for (const Work& work : works) work.wait();
     }},
    {"messages of a batch",
     [](Group& group, std::span<float> memory) {
       const int other = 1 - group.rank();
       const CallOptions waits{.caller_waits = true};
       std::vector<Work> works;
       works.reserve(3);
       bool ends = false;
       try {
         group.begin_coalescing();
         works.push_back(group.send({memory.data(), 100, DType::f32}, other, 0, waits));
         works.push_back(group.recv({memory.data() + 100, 100, DType::f32}, other, 0, waits));
         ends = true;
         works.push_back(group.end_coalescing());
       } catch (const std::exception& error) {
         if (ends && !works.front().done()) throw Broken("end_coalescing threw, and its calls run");
         group.abort(error.what());
       }
       for (const Work& work : works) work.wait();
     }},
    {"a wait with a limit",
     [](Group& group, std::span<float> memory) {
       const int other = 1 - group.rank();
       const Work work = group.recv({memory.data(), 1, DType::f32}, other, 0);
       try {
         work.wait(std::chrono::milliseconds(1));
       } catch (const TimeoutError&) {
         // The call goes on, as after any wait with a timeout.
       } catch (const std::bad_alloc&) {
         if (!work.done()) throw Broken("a wait threw std::bad_alloc before its call ended");
       }
       group.send({memory.data() + 1, 1, DType::f32}, other, 0).wait();
       work.wait();
     }},
    {"a part and its end",
     [](Group& group, std::span<float> memory) {
       const Buffer data{memory.data(), 100, DType::f32};
       const std::shared_ptr<Group> part = group.split(0, group.rank());
       part->all_reduce(data, data, ReduceKind::sum).wait();
       part->abort("it is needed no more");
     }},
};

enum class Where { caller, anywhere };

/// Set in each rank's process before the ranks meet.
Store* the_store = nullptr;

/// Distance between two allocations that fail. `make test` fails every third one, and
/// tests/python/test_sweeps.py (`make test-long`) every one.
int distance_of_points() { return std::getenv("MCCL_TEST_EVERY_POINT") != nullptr ? 1 : 3; }

/// Fails the allocations of a call on `victim` in turn: those of the caller's thread, or those of
/// all threads of the process. After each failure, every Work of the call must end on both ranks
/// long before its timeout. The call's memory must not be accessed again, and the next group must
/// work.
class OutOfMemoryAtEachPoint
    : public ::testing::TestWithParam<std::tuple<std::size_t, Where, const char*>> {};

INSTANTIATE_TEST_SUITE_P(Of, OutOfMemoryAtEachPoint,
                         ::testing::Combine(::testing::Range<std::size_t>(0, std::size(kSwept)),
                                            ::testing::Values(Where::caller, Where::anywhere),
                                            ::testing::Values("shm", "tcp")),
                         [](const auto& info) {
                           std::string name = kSwept[std::get<0>(info.param)].name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           const bool caller = std::get<1>(info.param) == Where::caller;
                           return name + (caller ? "_caller_" : "_anywhere_") +
                                  std::get<2>(info.param);
                         });

/// Runs the calls once while allocation number `point` fails on rank `victim`. Returns false if
/// there were fewer allocations.
bool reached(Context& context, const Swept& swept, Where where, int victim, int point) {
  constexpr std::size_t kElements = 400'000;
  static std::vector<float> memory(kElements, 1);
  const bool fails_here = context.rank() == victim;
  const std::string name = fmt::format("{} {} {}", swept.name, victim, point);
  bool spared = false;
  {
    std::shared_ptr<Group> group = context.group(name, {0, 1}, std::chrono::seconds(20));
    if (fails_here && where == Where::caller) failing_in = point;
    if (fails_here && where == Where::anywhere) failing_anywhere_in = point;
    const auto begun = std::chrono::steady_clock::now();
    try {
      swept.run(*group, memory);
    } catch (const Broken&) {
      throw;
    } catch (const std::exception&) {  // calls may throw
    }
    const int left =
        where == Where::caller ? std::exchange(failing_in, 0) : failing_anywhere_in.exchange(0);
    spared = left > 0;
    if (std::chrono::steady_clock::now() - begun > std::chrono::seconds(15)) {
      throw Error(fmt::format("{}: a call took too long: {}", name, group->failure()));
    }
    if (group->failure().empty() && fails_here && !spared) {
      // If a call threw, its Work may still be in flight in this group, although no caller owns it.
      group->abort("the sweep goes on");
    }
  }
  std::fill(memory.begin(), memory.end(), 1.0f);
  const auto agreement = context.group(name + " after", {0, 1}, std::chrono::seconds(20));
  std::uint8_t over = spared ? 1 : 0;
  agreement->broadcast({&over, 1, DType::u8}, victim).wait();
  // An allocation that fails outside a call ends every group of the rank, so the rank waits here
  // for the peer to finish.
  if (fails_here) agreement->recv({&over, 1, DType::u8}, 1 - victim, 0).wait();
  if (!fails_here) agreement->send({&over, 1, DType::u8}, victim, 0).wait();
  if (std::any_of(memory.begin(), memory.end(), [](float value) { return value != 1.0f; })) {
    throw Error(name + ": memory was written after its call had ended");
  }
  return over == 0;
}

TEST_P(OutOfMemoryAtEachPoint, OfACallEveryWorkEndsAndTheNextGroupWorks) {
  const auto& [index, where, transport] = GetParam();
  Processes job(2,
                [&](Context& context, const Processes::Say& say) {
                  context.world()->barrier().wait();
                  for (const int victim : {0, 1}) {
                    int point = 1;
                    while (reached(context, kSwept[index], where, victim, point))
                      point += distance_of_points();
                    say(point > 1 ? "well" : "no allocation failed");
                    // Both ranks must finish here: a failure on the next victim would end the last
                    // group of this rank.
                    the_store->add("swept", 1);
                    while (the_store->add("swept", 0) < 2 * (victim + 1)) std::this_thread::yield();
                  }
                },
                {.store_address = {},
                 .config_of =
                     [transport = transport](int) {
                       Config config = test_config();
                       config.log_level = "OFF";
                       config.calibrate = false;
                       config.transport = transport;
                       return config;
                     },
                 .enter = {},
                 .at_the_store = [](int, Store& store) { the_store = &store; }});
  for (const int rank : {0, 1}) {
    for (int victim = 0; victim < 2; ++victim) EXPECT_EQ(job.line(rank, kPatience), "well") << rank;
  }
  job.expect_good_end();
}

Config quiet_config(const char* transport) {
  Config config = test_config();
  config.log_level = "OFF";
  config.calibrate = false;
  config.transport = transport;
  return config;
}

class OutOfMemoryAtTheEnd : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Over, OutOfMemoryAtTheEnd, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

TEST_P(OutOfMemoryAtTheEnd, OfAContextTheProcessGoesOn) {
  std::string said;
  for (int point = 1; said != "spared"; ++point) {
    Processes job(
        2,
        [point](Context& context, const Processes::Say& say) {
          const std::shared_ptr<Group> group = context.group("g", {0, 1}, std::chrono::seconds(20));
          char token = 0;
          const Buffer message{&token, 1, DType::u8};
          group->barrier().wait();
          if (context.rank() == 0) return group->recv(message, 1, 0).wait();
          group->send(message, 0, 0).wait();
          const Work pending = group->recv(message, 0, 1);
          failing_anywhere_in = point;
          context.shutdown();
          say(failing_anywhere_in.exchange(0) > 0 ? "spared" : "goes on");
          if (!pending.done()) say("a call has not ended");
        },
        {.store_address = {},
         .config_of = [](int) { return quiet_config(GetParam()); },
         .enter = {},
         .at_the_store = {}});
    said = job.line(1);
    ASSERT_TRUE(said == "spared" || said == "goes on") << said << " at point " << point;
    job.expect_good_end();
  }
}

TEST_P(OutOfMemoryAtTheEnd, OfAGroupItsCompletedMessagesArrive) {
  constexpr int kPoints = 30;
  constexpr int kMessages = 20;
  static constexpr std::chrono::milliseconds kMostOfAnEnd{20};
  Processes job(
      2,
      [](Context& context, const Processes::Say&) {
        for (int point = 1; point <= kPoints; ++point) {
          const std::string name = "point " + std::to_string(point);
          std::shared_ptr<Group> group = context.group(name, {0, 1}, std::chrono::seconds(20));
          int token = 0;
          const Buffer message{&token, 1, DType::i32};
          if (context.rank() == 1) {
            for (; token < kMessages; ++token) group->send(message, 0, 0).wait();
            failing_anywhere_in = point;
            group.reset();
            // Waits until the engine has ended the group. This may need fewer allocations than
            // `point`.
            const auto limit = std::chrono::steady_clock::now() + kMostOfAnEnd;
            while (failing_anywhere_in > 0 && std::chrono::steady_clock::now() < limit) {
              std::this_thread::yield();
            }
            failing_anywhere_in = 0;
          } else {
            for (int sent = 0; sent < kMessages; ++sent) {
              group->recv(message, 1, 0).wait();
              if (token != sent) throw Error("a message is missing or out of order");
            }
          }
          the_store->add(name, 1);
          while (the_store->add(name, 0) < 2) std::this_thread::yield();
        }
      },
      {.store_address = {},
       .config_of = [](int) { return quiet_config(GetParam()); },
       .enter = {},
       .at_the_store = [](int, Store& store) { the_store = &store; }});
  job.expect_good_end();
}

/// The parameter is Config::spin_us. A caller that does not spin (0) hands its unfinished call over
/// to the driver.
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
  for (const int rank : {0, 1}) EXPECT_EQ(job.line(rank, kPatience), "well");
  job.expect_good_end();
}

}  // namespace
}  // namespace mccl
#endif
