// Tests how a group with default settings chooses the path of its device calls: all ranks agree on
// the path that measured fastest.
#include "backend/direct/auto_path.h"

#include <gmock/gmock.h>

#include "backend/native/group.h"
#include "device/registry.h"
#include "support/device_double.h"
#include "support/ranks.h"

namespace mccl {
namespace {

using testing::DeviceDouble;
using ::testing::HasSubstr;
using testing::run_ranks;

constexpr Device kDevice{DeviceKind::cuda, 0};
constexpr std::size_t kCount = 100;

/// A path that writes its own number instead of a result, and takes a given time.
class WayDouble final : public direct::Path {
 public:
  WayDouble(std::shared_ptr<DeviceDouble> device, float number, Collective only)
      : device_(std::move(device)),
        number_(number),
        only_(only),
        queue_(device::depot_of(kDevice)) {
    order_by(queue_);
  }

  bool takes(const Request& request) override {
    if (!request.counts.empty()) return false;
    return only_ == Collective::barrier || request.call.collective == only_;
  }
  void enqueue(const Request& request, void* stream) override {
    auto& queue = *static_cast<DeviceDouble::Queue*>(stream);
    // Calls with bf16 are measurements. They only take time and write nothing, because their
    // lengths are chosen for real GPUs.
    if (request.call.dtype == DType::bf16)
      return queue.enqueue([pause = pause] {
        const auto until = Clock::now() + pause;
        while (Clock::now() < until) std::this_thread::yield();
      });
    queue.enqueue([to = reinterpret_cast<float*>(device_->at(request.out.data)),
                   count = request.out.count,
                   number = number_] { std::fill_n(to, count, number); });
  }
  void reach_memory(Device) override { ++times_reached; }
  std::string failure() override { return {}; }
  void end_calls() noexcept override {}

  static inline std::atomic<int> times_reached{0};
  std::chrono::microseconds pause{0};

 private:
  const std::shared_ptr<DeviceDouble> device_;
  const float number_;
  const Collective only_;
  device::SerialQueue queue_;
};

class AutoPaths : public ::testing::Test {
 protected:
  void SetUp() override {
    device::replace_maker(DeviceKind::cuda, [this](int) { return device_; });
  }
  void TearDown() override { device::replace_maker(DeviceKind::cuda, nullptr); }

  direct::PathCandidate way(const std::string& name, float number, std::chrono::microseconds pause,
                            Collective only = Collective::barrier) const {
    return {name, [this, number, pause, only] {
              auto made = std::make_shared<WayDouble>(device_, number, only);
              made->pause = pause;
              return made;
            }};
  }
  static direct::PathCandidate missing(const std::string& why) {
    return {"missing", [why]() -> std::shared_ptr<direct::Path> { throw InvalidArgument(why); }};
  }
  static native::NativeGroup& use(Context& context,
                                  const std::vector<direct::PathCandidate>& candidates,
                                  std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
    auto& group = dynamic_cast<native::NativeGroup&>(*context.world());
    group.use(std::make_shared<direct::AutoPath>(group, candidates, timeout,
                                                 Log(context.rank(), LogLevel::error)));
    return group;
  }
  /// Returns the result of an all_reduce of ones.
  float all_reduce(Group& group, bool on_device, bool may_meet = true) {
    if (!on_device) {
      float host = 1;
      group.all_reduce({&host, 1, DType::f32}, {&host, 1, DType::f32}, ReduceKind::sum).wait();
      return host;
    }
    DeviceDouble::Queue stream(*device_);
    const auto memory = device_->allocate(sizeof(float));
    auto* const inside = reinterpret_cast<float*>(memory->inside());
    stream.enqueue([inside] { *inside = 1; });
    const Buffer data{memory->outside(), 1, DType::f32, kDevice};
    const Work work =
        group.all_reduce(data, data, ReduceKind::sum, {.may_meet = may_meet, .stream = &stream});
    work.wait_on_stream(&stream);
    float found = 0;
    stream.enqueue([&] { found = *inside; });
    stream.finish();
    work.wait();
    return found;
  }

  const std::shared_ptr<DeviceDouble> device_ = std::make_shared<DeviceDouble>();
};

TEST_F(AutoPaths, TheFirstCallUsesThePathIfAllRanksHaveDeviceMemory) {
  run_ranks(2, [this](Context& context) {
    Group& group = use(context, {way("one", 42, std::chrono::microseconds(0))});
    EXPECT_EQ(all_reduce(group, true), 42);
    EXPECT_EQ(all_reduce(group, true), 42);
  });
}

TEST_F(AutoPaths, TheFirstCallOnDevicesIsRefusedWhileItsStreamIsCaptured) {
  run_ranks(2, [this](Context& context) {
    Group& group = use(context, {way("one", 42, std::chrono::microseconds(0))});
    DeviceDouble::Queue stream(*device_);
    const auto memory = device_->allocate(sizeof(float));
    const Buffer data{memory->outside(), 1, DType::f32, kDevice};
    const auto all_reduce_captured = [&] {
      stream.capture(true);
      const Work work = group.all_reduce(data, data, ReduceKind::sum, {.stream = &stream});
      stream.capture(false);
      return work;
    };
    std::string refusal;
    try {
      all_reduce_captured();
    } catch (const InvalidArgument& error) {
      refusal = error.what();
    }
    EXPECT_THAT(refusal, HasSubstr("make a first collective on GPU memory before the capture"));
    stream.capture(false);
    EXPECT_EQ(all_reduce(group, true), 42) << "the refused call was counted";
    EXPECT_TRUE(all_reduce_captured().done());
    stream.finish();
  });
}

TEST_F(AutoPaths, AllRanksUseTheHostIfOneHasHostMemory) {
  run_ranks(3, [this](Context& context) {
    Group& group = use(context, {way("one", 42, std::chrono::microseconds(0))});
    for (int call = 0; call < 3; ++call) {
      EXPECT_EQ(all_reduce(group, context.rank() != 1), 3);
    }
    EXPECT_EQ(all_reduce(group, true), 3) << "the choice of the host path is final";
  });
}

/// Each rank sends one element to every rank, and declares that all counts are equal. Returns the
/// last element of the result.
float all_to_all_of_equal_counts(Group& group, const std::shared_ptr<DeviceDouble>& device,
                                 bool on_device) {
  const std::vector<std::size_t> counts(static_cast<std::size_t>(group.size()), 1);
  const auto rank = static_cast<float>(group.rank());
  if (!on_device) {
    std::vector<float> given(counts.size(), rank);
    std::vector<float> taken(counts.size(), -1);
    group
        .all_to_allv({given.data(), given.size(), DType::f32}, counts,
                     {taken.data(), taken.size(), DType::f32}, counts)
        .wait();
    return taken.back();
  }
  DeviceDouble::Queue stream(*device);
  const auto given = device->allocate(counts.size() * sizeof(float));
  const auto taken = device->allocate(counts.size() * sizeof(float));
  auto* const source = reinterpret_cast<float*>(given->inside());
  const auto* const result = reinterpret_cast<const float*>(taken->inside());
  stream.enqueue([=, count = counts.size()] { std::fill_n(source, count, rank); });
  const Work work =
      group.all_to_allv({given->outside(), counts.size(), DType::f32, kDevice}, counts,
                        {taken->outside(), counts.size(), DType::f32, kDevice}, counts,
                        {.may_meet = true, .stream = &stream, .equal_counts = true});
  work.wait_on_stream(&stream);
  float found = 0;
  stream.enqueue([&, last = counts.size() - 1] { found = result[last]; });
  stream.finish();
  work.wait();
  return found;
}

TEST_F(AutoPaths, EqualCountsUseThePathAndMatchCountsPerRank) {
  run_ranks(3, [this](Context& context) {
    const auto group = [&]() -> Group& {
      return use(context, {way("one", 42, std::chrono::microseconds(0))});
    };
    EXPECT_EQ(all_to_all_of_equal_counts(group(), device_, true), 42);
    EXPECT_EQ(all_to_all_of_equal_counts(group(), device_, context.rank() != 1), 2);
  });
}

TEST_F(AutoPaths, NeedNoAgreementAfterReachingMemory) {
  WayDouble::times_reached = 0;
  run_ranks(2, [this](Context& context) {
    Group& group = use(context, {way("one", 42, std::chrono::microseconds(0))});
    EXPECT_EQ(all_reduce(group, false), 2);
    group.reach_device_memory(kDevice);
    EXPECT_EQ(all_reduce(group, true, false), 42) << "the call needed an agreement";
    group.reach_device_memory(kDevice);
    EXPECT_EQ(all_reduce(group, true), 42);
  });
  EXPECT_EQ(WayDouble::times_reached, 2) << "only the second reach_device_memory() of each rank";
}

TEST_F(AutoPaths, TheHostPathDoesNotReachPeerMemory) {
  WayDouble::times_reached = 0;
  run_ranks(2, [this](Context& context) {
    Group& group = use(context, {way("one", 42, std::chrono::microseconds(0))});
    EXPECT_EQ(all_reduce(group, context.rank() != 1), 2);
    EXPECT_EQ(all_reduce(group, true), 2);
    group.reach_device_memory(kDevice);
    EXPECT_EQ(all_reduce(group, true), 2) << "the choice of the host path is final";
  });
  EXPECT_EQ(WayDouble::times_reached, 0);
}

TEST_F(AutoPaths, EarlierHostCallsDoNotDecide) {
  run_ranks(2, [this](Context& context) {
    Group& group = use(context, {way("one", 42, std::chrono::microseconds(0))});
    for (int call = 1; call <= 5; ++call) EXPECT_EQ(all_reduce(group, false), 2);
    EXPECT_EQ(all_reduce(group, true), 2) << "call 6: the ranks agree only at calls 4 and 8";
    EXPECT_EQ(all_reduce(group, true), 2);
    EXPECT_EQ(all_reduce(group, true), 42) << "call 8: the ranks agree on the path";
    EXPECT_EQ(all_reduce(group, false), 2) << "host memory does not use the path";
  });
}

TEST_F(AutoPaths, ACallerThatMustNotBlockUsesTheHost) {
  run_ranks(2, [this](Context& context) {
    Group& group = use(context, {way("one", 42, std::chrono::microseconds(0))});
    EXPECT_EQ(all_reduce(group, true, context.rank() == 0), 2);
    EXPECT_EQ(all_reduce(group, true, false), 2);
    EXPECT_EQ(all_reduce(group, true), 2) << "call 3: the ranks agree only at call 4";
    EXPECT_EQ(all_reduce(group, true), 42);
  });
}

TEST_F(AutoPaths, UsesTheFasterPath) {
  run_ranks(2, [this](Context& context) {
    Group& group = use(context, {way("slow", 1000, std::chrono::microseconds(2000)),
                                 way("fast", 42, std::chrono::microseconds(0))});
    EXPECT_EQ(all_reduce(group, true), 42);
  });
}

/// Measuring is this slow on GPUs that many processes share. The slow path makes 270 measured
/// calls, in rows of at most 10.
TEST_F(AutoPaths, MeasuringMayTakeLongerThanTheTimeoutWhileItGoesOn) {
  run_ranks(2, [this](Context& context) {
    Group& group = use(context,
                       {way("slow", 1000, std::chrono::microseconds(3000)),
                        way("fast", 42, std::chrono::microseconds(0))},
                       std::chrono::milliseconds(1000));
    EXPECT_EQ(all_reduce(group, true), 42);
  });
}

TEST_F(AutoPaths, UsesTheOtherPathForUnsupportedCalls) {
  run_ranks(2, [this](Context& context) {
    Group& group =
        use(context, {way("fast", 1000, std::chrono::microseconds(0), Collective::broadcast),
                      way("slow", 42, std::chrono::microseconds(500))});
    EXPECT_EQ(all_reduce(group, true), 42);
  });
}

TEST_F(AutoPaths, SkipsAPathThatOneRankLacks) {
  run_ranks(2, [this](Context& context) {
    std::vector<direct::PathCandidate> candidates{way("one", 42, std::chrono::microseconds(0))};
    if (context.rank() == 1) candidates.front() = missing("there is none");
    Group& group = use(context, candidates);
    EXPECT_EQ(all_reduce(group, true), 2);
  });
}

TEST_F(AutoPaths, MessagesAndBatchesDoNotStartTheAgreement) {
  run_ranks(2, [this](Context& context) {
    Group& group = use(context, {way("one", 42, std::chrono::microseconds(0))});
    DeviceDouble::Queue stream(*device_);
    const auto memory = device_->allocate(sizeof(float));
    stream.enqueue([memory] { *reinterpret_cast<float*>(memory->inside()) = 7; });
    stream.finish();
    const Buffer data{memory->outside(), 1, DType::f32, kDevice};
    if (context.rank() == 0) {
      group.send(data, 1, 3, {.stream = &stream}).wait();
    } else {
      group.recv(data, 0, 3, {.stream = &stream}).wait();
    }
    group.begin_coalescing();
    group.all_reduce(data, data, ReduceKind::max, {.stream = &stream});
    group.end_coalescing().wait();
    EXPECT_EQ(*reinterpret_cast<float*>(memory->inside()), 7);
  });
}

}  // namespace
}  // namespace mccl
