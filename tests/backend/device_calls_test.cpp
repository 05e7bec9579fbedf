// Tests calls on device memory: their order among other calls, streams, and errors.
#include <gmock/gmock.h>

#include "device/registry.h"
#include "support/device_double.h"
#include "support/failure.h"
#include "support/ranks.h"

namespace mccl {
namespace {

using testing::DeviceDouble;
using testing::failure_of;
using testing::ForbiddenMemory;
using ::testing::HasSubstr;
using testing::run_ranks;
using testing::test_config;

constexpr std::size_t kCount = 5000;
constexpr Device kDevice{DeviceKind::cuda, 0};

class DeviceCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    device::replace_maker(DeviceKind::cuda, [this](int) { return device_; });
  }
  void TearDown() override { device::replace_maker(DeviceKind::cuda, nullptr); }

  const std::shared_ptr<DeviceDouble> device_ = std::make_shared<DeviceDouble>();
};

/// Floats on the device, filled and read by a stream.
class Numbers {
 public:
  explicit Numbers(DeviceDouble& device, std::size_t count = kCount)
      : memory_(device.allocate(count * sizeof(float))), count_(count) {}

  Buffer buffer() const { return {memory_->outside(), count_, DType::f32, kDevice}; }
  void fill(DeviceDouble::Queue& stream, float value) const {
    stream.enqueue([memory = memory_, count = count_, value] {
      std::fill_n(reinterpret_cast<float*>(memory->inside()), count, value);
    });
  }
  /// Enqueues a read and returns the vector that the stream will fill.
  std::shared_ptr<std::vector<float>> read(DeviceDouble::Queue& stream) const {
    auto found = std::make_shared<std::vector<float>>(count_);
    stream.enqueue([memory = memory_, found] {
      std::memcpy(found->data(), memory->inside(), found->size() * sizeof(float));
    });
    return found;
  }

 private:
  std::shared_ptr<ForbiddenMemory> memory_;
  std::size_t count_;
};

TEST_F(DeviceCalls, AStreamWaitsForACallWhileTheHostGoesOn) {
  run_ranks(2, [this](Context& context) {
    DeviceDouble::Queue stream(*device_);
    const Numbers data(*device_);
    const auto open = std::make_shared<std::atomic<bool>>(false);
    stream.hold(open);  // the call cannot end before the host has gone on
    data.fill(stream, 1);
    const Work work = context.world()->all_reduce(data.buffer(), data.buffer(), ReduceKind::sum,
                                                  {.stream = &stream});
    work.wait_on_stream(&stream);
    const auto found = data.read(stream);
    EXPECT_FALSE(work.done());
    open->store(true);
    stream.finish();
    EXPECT_EQ(*found, std::vector<float>(kCount, 2));
    work.wait();
  });
}

/// The device makes only a few of the copies of the input at first. Data that then arrives at the
/// other rank was sent before the copy was complete.
TEST_F(DeviceCalls, ALongCallIsOnTheWireWhileItIsCopied) {
  constexpr std::size_t kLong = std::size_t{1} << 20;
  run_ranks(
      2,
      [&](Context& context) {
        DeviceDouble::Queue stream(*device_);
        const Numbers data(*device_, kLong);
        data.fill(stream, context.rank() == 0 ? 5 : 0);
        stream.finish();
        const bool is_root = context.rank() == 0;
        if (is_root) device_->copies_to_host = 4;  // the whole call needs 32 copies
        const Work work = context.world()->broadcast(data.buffer(), 0, {.stream = &stream});
        if (is_root) {
          while (device_->copies_to_device == 0) std::this_thread::yield();
          EXPECT_FALSE(work.done());
          device_->copies_to_host = DeviceDouble::kAnyNumber;
        }
        work.wait_on_stream(&stream);
        const auto found = data.read(stream);
        stream.finish();
        EXPECT_EQ(*found, std::vector<float>(kLong, 5));
        work.wait();
      },
      [](int) {
        Config config = test_config();
        config.chunk_bytes = 64 << 10;
        return config;
      });
}

TEST_F(DeviceCalls, SeveralStreamsMayWaitForACall) {
  run_ranks(2, [this](Context& context) {
    DeviceDouble::Queue stream(*device_);
    DeviceDouble::Queue other(*device_);
    const Numbers data(*device_);
    data.fill(stream, 3);
    const Work work = context.world()->all_reduce(data.buffer(), data.buffer(), ReduceKind::max,
                                                  {.stream = &stream});
    work.wait_on_stream(&other);
    const auto found = data.read(other);
    other.finish();
    EXPECT_EQ(*found, std::vector<float>(kCount, 3));
    work.wait();
    work.wait_on_stream(&other);  // the call has ended already
  });
}

/// Rank 0's first call waits for a late stream of its device. A later call on host memory must not
/// overtake it.
TEST_F(DeviceCalls, ACallOfHostMemoryStaysBehindOneThatWaitsForItsDevice) {
  run_ranks(2, [this](Context& context) {
    DeviceDouble::Queue stream(*device_);
    const Numbers data(*device_);
    std::vector<float> host(kCount, 1);
    const Buffer on_host{host.data(), host.size(), DType::f32};
    const auto open = std::make_shared<std::atomic<bool>>(false);
    Group& group = *context.world();
    std::vector<Work> works;
    if (group.rank() == 0) {
      stream.hold(open);
      data.fill(stream, 1);
      works.push_back(
          group.all_reduce(data.buffer(), data.buffer(), ReduceKind::sum, {.stream = &stream}));
    } else {
      works.push_back(group.all_reduce(on_host, on_host, ReduceKind::sum));
    }
    std::vector<float> next(10, static_cast<float>(group.rank()));
    works.push_back(group.broadcast({next.data(), next.size(), DType::f32}, 1));
    works.push_back(group.barrier());
    open->store(true);
    for (const Work& work : works) work.wait();
    EXPECT_EQ(next, std::vector<float>(10, 1));
    const auto found = data.read(stream);
    stream.finish();
    EXPECT_EQ(group.rank() == 0 ? *found : host, std::vector<float>(kCount, 2));
  });
}

TEST_F(DeviceCalls, ABatchOfBothKindsStartsInItsOrder) {
  run_ranks(2, [this](Context& context) {
    Group& group = *context.world();
    DeviceDouble::Queue stream(*device_);
    const Numbers data(*device_);
    const Numbers got(*device_);
    const bool first = group.rank() == 0;
    std::vector<float> host(kCount, 1);
    const Buffer on_host{host.data(), host.size(), DType::f32};
    float number = 7;
    data.fill(stream, 1);
    group.begin_coalescing();
    group.all_reduce({&number, 1, DType::f32}, {&number, 1, DType::f32}, ReduceKind::sum);
    const Buffer mine = first ? data.buffer() : on_host;
    const Work inside = group.all_reduce(mine, mine, ReduceKind::sum, {.stream = &stream});
    group.all_reduce({&number, 1, DType::f32}, {&number, 1, DType::f32}, ReduceKind::sum);
    if (first) {
      EXPECT_THROW(inside.wait(), InvalidArgument);
      group.recv(got.buffer(), 1, 5, {.stream = &stream});
    } else {
      group.send(on_host, 0, 5);
    }
    const Work work = group.end_coalescing();
    work.wait_on_stream(&stream);
    const auto sum = data.read(stream);
    work.wait();
    stream.finish();
    EXPECT_EQ(number, 28);
    EXPECT_EQ(first ? *sum : host, std::vector<float>(kCount, 2));
  });
}

TEST_F(DeviceCalls, AStreamThatNeverReachesTheCallTimesOut) {
  const auto open = std::make_shared<std::atomic<bool>>(false);
  const auto said = testing::run_failing_ranks(2, [this, open](Context& context) {
    DeviceDouble::Queue stream(*device_);
    const Numbers data(*device_);
    stream.hold(open);
    const Work work = context.world()->all_reduce(
        data.buffer(), data.buffer(), ReduceKind::sum,
        {.timeout = std::chrono::milliseconds(context.rank() == 0 ? 50 : 60'000),
         .stream = &stream});
    if (context.rank() == 1) {
      while (context.world()->failure().empty()) std::this_thread::yield();
    }
    open->store(context.rank() == 1);
    work.wait();
  });
  EXPECT_THAT(said[0], HasSubstr("all_reduce on rank 0 (device memory) timed out"));
  EXPECT_THAT(said[1], HasSubstr("rank 0"));
}

TEST_F(DeviceCalls, ACallOfAFailedGroupFailsAndTouchesNoMemory) {
  const auto said = testing::run_failing_ranks(1, [this](Context& context) {
    DeviceDouble::Queue stream(*device_);
    const Numbers data(*device_);
    Group& group = *context.world();
    group.abort("the test says so");
    while (group.failure().empty()) std::this_thread::yield();
    const int before = device_->copies_to_host;
    const Work work =
        group.all_reduce(data.buffer(), data.buffer(), ReduceKind::sum, {.stream = &stream});
    stream.finish();
    EXPECT_EQ(device_->copies_to_host, before);
    work.wait();
  });
  EXPECT_THAT(said[0], HasSubstr("the test says so"));
}

TEST_F(DeviceCalls, ErrorsNameTheFault) {
  run_ranks(1, [this](Context& context) {
    Group& group = *context.world();
    DeviceDouble::Queue stream(*device_);
    const Numbers data(*device_);
    float host = 0;
    EXPECT_THAT(failure_of<InvalidArgument>([&] {
                  group.all_reduce(data.buffer(),
                                   {data.buffer().data, kCount, DType::f32, {DeviceKind::cuda, 1}},
                                   ReduceKind::sum);
                }),
                HasSubstr("input is on cuda:0 and output on cuda:1"));
    EXPECT_THAT(failure_of<InvalidArgument>([&] {
                  group.broadcast({&host, 1, DType::f32, kDevice}, 0);
                }),
                HasSubstr("broadcast: input lies on no device"));
    EXPECT_THAT(failure_of<InvalidArgument>([&] {
                  group.broadcast({data.buffer().data, 1, DType::f32, {DeviceKind::metal, 0}}, 0);
                }),
                HasSubstr("metal:0"));
    stream.capture(true);
    EXPECT_THAT(failure_of<InvalidArgument>(
                    [&] { group.broadcast(data.buffer(), 0, {.stream = &stream}); }),
                HasSubstr("being captured"));
  });
}

TEST(NoDevice, IsReportedInOneSentence) {
  run_ranks(1, [](Context& context) {
    float value = 0;
    const std::string said = failure_of<InvalidArgument>([&] {
      context.world()->broadcast({&value, 1, DType::f32, {DeviceKind::cuda, 99}}, 0);
    });
    // With a GPU the index is invalid; without one there is no driver or no GPU.
    EXPECT_THAT(said, ::testing::AnyOf(HasSubstr("no CUDA driver"), HasSubstr("finds no GPU"),
                                       HasSubstr("there is no cuda:99: this process sees")));
    EXPECT_EQ(said.find('\n'), std::string::npos);
  });
}

}  // namespace
}  // namespace mccl
