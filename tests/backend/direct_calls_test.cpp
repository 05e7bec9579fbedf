// Tests calls that a device carries out itself: which calls they are, how they end, and how they
// fail.
#include <gmock/gmock.h>

#include "backend/native/group.h"
#include "device/registry.h"
#include "support/device_double.h"
#include "support/hosts.h"
#include "support/processes.h"
#include "support/ranks.h"

namespace mccl {
namespace {

using testing::DeviceDouble;
using ::testing::HasSubstr;
using testing::run_ranks;

constexpr std::size_t kCount = 100;
constexpr Device kDevice{DeviceKind::cuda, 0};
constexpr float kDirect = 42;

/// A path that takes only all_reduce calls and writes a number that no sum yields.
class PathDouble final : public direct::Path {
 public:
  explicit PathDouble(std::shared_ptr<DeviceDouble> device)
      : device_(std::move(device)), queue_(device::depot_of(kDevice)) {
    order_by(queue_);
  }

  bool takes(const Request& request) override {
    return request.call.collective == Collective::all_reduce;
  }
  void enqueue(const Request& request, void* stream) override {
    auto& queue = *static_cast<DeviceDouble::Queue*>(stream);
    if (const auto lock = lock_in_use()) queue.hold(lock);
    queue.enqueue([to = reinterpret_cast<float*>(device_->at(request.out.data)),
                   count = request.call.count] { std::fill_n(to, count, kDirect); });
  }
  void reach_memory(Device device) override { reached = device; }
  std::string failure() override { return broken ? "the cable is cut" : ""; }
  void end_calls() noexcept override {
    aborted = true;
    if (const auto lock = lock_in_use()) lock->store(true);
  }
  /// Makes later calls run until end_calls().
  void hold_calls() {
    const std::lock_guard guard(mutex_);
    lock_ = std::make_shared<std::atomic<bool>>(false);
  }

  Device reached;
  std::atomic<bool> broken{false};
  std::atomic<bool> aborted{false};

 private:
  std::shared_ptr<std::atomic<bool>> lock_in_use() {
    const std::lock_guard guard(mutex_);
    return lock_;
  }

  const std::shared_ptr<DeviceDouble> device_;
  device::SerialQueue queue_;
  std::mutex mutex_;
  std::shared_ptr<std::atomic<bool>> lock_;  // guarded by mutex_
};

/// A rank whose world uses a path of its own.
struct RankOnDevice {
  RankOnDevice(Context& context, const std::shared_ptr<DeviceDouble>& device)
      : path(std::make_shared<PathDouble>(device)),
        group(dynamic_cast<native::NativeGroup&>(*context.world())),
        stream(*device),
        memory(device->allocate(kCount * sizeof(float))),
        data{memory->outside(), kCount, DType::f32, kDevice} {
    group.use(path);
  }
  /// Makes a call for whose end the stream waits, so that it has no Work.
  void call(std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    group.all_reduce(data, data, ReduceKind::sum,
                     {.timeout = timeout, .caller_waits = true, .stream = &stream});
  }

  const std::shared_ptr<PathDouble> path;
  native::NativeGroup& group;
  DeviceDouble::Queue stream;
  const std::shared_ptr<testing::ForbiddenMemory> memory;
  const Buffer data;
};

class DirectCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    device::replace_maker(DeviceKind::cuda, [this](int) { return device_; });
    path_ = std::make_shared<PathDouble>(device_);
  }
  void TearDown() override {
    path_.reset();
    device::replace_maker(DeviceKind::cuda, nullptr);
  }
  native::NativeGroup& group_of(Context& context) const {
    auto& group = dynamic_cast<native::NativeGroup&>(*context.world());
    group.use(path_);
    return group;
  }
  Buffer ones(DeviceDouble::Queue& stream) {
    memory_ = device_->allocate(kCount * sizeof(float));
    stream.enqueue([memory = memory_] {
      std::fill_n(reinterpret_cast<float*>(memory->inside()), kCount, 1.0F);
    });
    return {memory_->outside(), kCount, DType::f32, kDevice};
  }
  float seen_by(DeviceDouble::Queue& stream) {
    float value = 0;
    stream.enqueue([&] { value = reinterpret_cast<float*>(memory_->inside())[kCount - 1]; });
    stream.finish();
    return value;
  }

  const std::shared_ptr<DeviceDouble> device_ = std::make_shared<DeviceDouble>();
  std::shared_ptr<PathDouble> path_;
  std::shared_ptr<testing::ForbiddenMemory> memory_;
};

TEST_F(DirectCalls, LogsAnUnusableFeatureOncePerJobAndReason) {
  run_ranks(1, [](Context& context) {
    const Group& group = *context.world();
    ::testing::internal::CaptureStderr();
    {
      const auto store = make_memory_store();
      direct::Notices notices(Log(0, LogLevel::warn), store);
      direct::Notices of_another_process(Log(1, LogLevel::warn), store);
      for (int i = 0; i < 3; ++i) notices.warn(group, "the cable is cut");
      of_another_process.warn(group, "the cable is cut");
      notices.warn(group, "the cable is short");
    }
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
    EXPECT_THAT(said, HasSubstr("the cable is short"));
  });
}

TEST_F(DirectCalls, TheRecordShowsACallThatItsGroupOnGpusHasNumbered) {
  run_ranks(1, [this](Context& context) {
    DeviceDouble::Queue stream(*device_);
    const Buffer data = ones(stream);
    for (int i = 0; i < 2; ++i) {
      group_of(context).all_reduce(
          data, data, ReduceKind::sum,
          {.caller_waits = true, .stream = &stream, .site = call_site("train.py:42")});
    }
    const std::string record = context.flight_record();
    EXPECT_THAT(record, HasSubstr(R"("name":"world on GPUs")"));
    EXPECT_THAT(record, HasSubstr(R"("call":"all_reduce","sequence":2,"bytes":400,"dtype":"f32",)"
                                  R"("state":"enqueued","op":"sum","algorithm":"gpu")"));
    EXPECT_THAT(record, HasSubstr(R"("site":"train.py:42")"));
  });
}

TEST_F(DirectCalls, ACapturedCallIsInItsStream) {
  run_ranks(1, [this](Context& context) {
    DeviceDouble::Queue stream(*device_);
    const Buffer data = ones(stream);
    stream.capture(true);
    const Work work =
        group_of(context).all_reduce(data, data, ReduceKind::sum, {.stream = &stream});
    EXPECT_TRUE(work.done());
    EXPECT_EQ(group_of(context).last_on_device(), device::Word{0})
        << "a captured call has a number";
    stream.capture(false);
    EXPECT_EQ(seen_by(stream), kDirect);
  });
}

TEST_F(DirectCalls, SupportedCallsUseThePath) {
  run_ranks(1, [this](Context& context) {
    Group& group = group_of(context);
    DeviceDouble::Queue stream(*device_);
    const Buffer data = ones(stream);
    const Work work = group.all_reduce(data, data, ReduceKind::sum, {.stream = &stream});
    work.wait_on_stream(&stream);
    EXPECT_EQ(seen_by(stream), kDirect);
    work.wait();
    const Buffer other = ones(stream);
    group.broadcast(other, 0, {.stream = &stream}).wait_on_stream(&stream);
    EXPECT_EQ(seen_by(stream), 1) << "an unsupported call must use the host";
  });
}

TEST_F(DirectCalls, ThePathReachesMemory) {
  run_ranks(1, [this](Context& context) {
    context.world()->reach_device_memory(kDevice);
    EXPECT_EQ(path_->reached.kind, DeviceKind::cpu) << "a group without a path reached memory";
    group_of(context).reach_device_memory(kDevice);
    EXPECT_EQ(path_->reached.kind, DeviceKind::cuda);
  });
}

TEST_F(DirectCalls, ABlockingCallRunsOnTheCallersStream) {
  run_ranks(1, [this](Context& context) {
    Group& group = group_of(context);
    DeviceDouble::Queue stream(*device_);
    const Buffer data = ones(stream);
    const Work work =
        group.all_reduce(data, data, ReduceKind::sum, {.caller_waits = true, .stream = &stream});
    EXPECT_TRUE(work.done());
    EXPECT_EQ(seen_by(stream), kDirect);
  });
}

TEST_F(DirectCalls, BatchesAndHostMemoryDoNotUseThePath) {
  run_ranks(1, [this](Context& context) {
    Group& group = group_of(context);
    DeviceDouble::Queue stream(*device_);
    const Buffer data = ones(stream);
    group.begin_coalescing();
    group.all_reduce(data, data, ReduceKind::sum, {.stream = &stream});
    group.end_coalescing().wait_on_stream(&stream);
    EXPECT_EQ(seen_by(stream), 1);
    float host = 5;
    group.all_reduce({&host, 1, DType::f32}, {&host, 1, DType::f32}, ReduceKind::sum).wait();
    EXPECT_EQ(host, 5);
  });
}

TEST_F(DirectCalls, AFailureNamesTheCallAndTheCause) {
  run_ranks(1, [this](Context& context) {
    Group& group = group_of(context);
    DeviceDouble::Queue stream(*device_);
    const Buffer data = ones(stream);
    path_->hold_calls();
    const Work broken = group.all_reduce(data, data, ReduceKind::sum, {.stream = &stream});
    path_->broken = true;
    try {
      broken.wait();
      FAIL() << "the call has not failed";
    } catch (const PeerError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("all_reduce #1 on GPU memory (sum of 100 f32) on rank 0 (double:0)"));
      EXPECT_THAT(error.what(), HasSubstr("the cable is cut"));
    }
    EXPECT_TRUE(path_->aborted);
    stream.finish();
  });
}

TEST_F(DirectCalls, CallsBehindOneThatTimedOutHaveNoResult) {
  run_ranks(1, [this](Context& context) {
    const auto other = context.group("other", {0}, std::chrono::seconds(30));
    auto& group = dynamic_cast<native::NativeGroup&>(*other);
    group.use(path_);
    DeviceDouble::Queue stream(*device_);
    const Buffer data = ones(stream);
    path_->hold_calls();
    const Work late = group.all_reduce(
        data, data, ReduceKind::sum, {.timeout = std::chrono::milliseconds(20), .stream = &stream});
    const Work behind = group.all_reduce(data, data, ReduceKind::sum, {.stream = &stream});
    EXPECT_THROW(late.wait(), TimeoutError);
    stream.finish();
    EXPECT_THROW(behind.wait(), TimeoutError);
  });
}

TEST_F(DirectCalls, AnAbortEndsRunningCalls) {
  run_ranks(1, [this](Context& context) {
    const auto other = context.group("other", {0}, std::chrono::seconds(30));
    auto& group = dynamic_cast<native::NativeGroup&>(*other);
    group.use(path_);
    DeviceDouble::Queue stream(*device_);
    const Buffer data = ones(stream);
    path_->hold_calls();
    group.all_reduce(data, data, ReduceKind::sum, {.caller_waits = true, .stream = &stream});
    group.abort("enough");
    EXPECT_TRUE(path_->aborted);
    stream.finish();
  });
}

/// The caller waits on its stream, so the call has no Work. An abort must end the call
/// nevertheless.
TEST_F(DirectCalls, AnAbortOfAnotherRankEndsRunningCalls) {
  testing::run_failing_ranks(2, [this](Context& context) {
    Group& world = *context.world();
    if (context.rank() == 1) {
      world.barrier().wait();
      return world.abort("enough");
    }
    Group& group = group_of(context);
    DeviceDouble::Queue stream(*device_);
    const Buffer data = ones(stream);
    path_->hold_calls();
    group.all_reduce(data, data, ReduceKind::sum, {.caller_waits = true, .stream = &stream});
    world.barrier().wait();
    stream.finish();
    EXPECT_TRUE(path_->aborted);
    EXPECT_THAT(world.failure(), HasSubstr("enough"));
  });
}

/// Runs two ranks, which make one call. Their later calls on devices do not end by themselves:
/// those of `of_rank_0` and `of_rank_1`. Then each rank waits for the failure of the group. Returns
/// the errors of both.
std::vector<std::string> run_held_calls(
    const std::shared_ptr<DeviceDouble>& device,
    const std::function<void(Group&, Buffer, const CallOptions&)>& of_rank_0,
    const std::function<void(Group&, Buffer, const CallOptions&)>& of_rank_1) {
  return testing::run_failing_ranks(
      2,
      [&](Context& context) {
        RankOnDevice rank(context, device);
        rank.call();
        rank.path->hold_calls();
        try {
          (context.rank() == 0 ? of_rank_0 : of_rank_1)(rank.group, rank.data,
                                                        {.stream = &rank.stream});
          while (rank.group.failure().empty()) std::this_thread::yield();
          rank.stream.finish();
          throw Error(rank.group.failure());
        } catch (const Error&) {
          rank.path->abort();
          rank.stream.finish();
          throw;
        }
      },
      [](int) {
        Config config = testing::test_config();
        config.liveness_interval = 2;  // a heartbeat each 50 ms
        config.log_level = "WARN";
        config.warn_after = 0.2;
        return config;
      });
}

/// Neither call has a Work, so no thread of either program waits for its end.
TEST_F(DirectCalls, CallsThatDifferFailOnAllRanks) {
  const auto call = [](std::size_t count) {
    return [count](Group& group, Buffer data, CallOptions options) {
      options.caller_waits = true;
      options.site = call_site("train.py:" + std::to_string(count));
      data.count = count;
      group.all_reduce(data, data, ReduceKind::sum, options);
    };
  };
  for (const std::string& error : run_held_calls(device_, call(7), call(8))) {
    EXPECT_THAT(error, HasSubstr("calls all_reduce #2 on GPU memory (sum of "));
    EXPECT_THAT(error, HasSubstr("f32) instead of the call at train.py:"));
  }
}

TEST_F(DirectCalls, ALateRankIsNamedBeforeAndByTheTimeout) {
  for (const bool waits_on_the_host : {false, true}) {
    ::testing::internal::CaptureStderr();
    const std::vector<std::string> errors = run_held_calls(
        device_,
        [=](Group& group, Buffer data, CallOptions options) {
          options.timeout = std::chrono::seconds(1);
          options.caller_waits = !waits_on_the_host;
          group.all_reduce(data, data, ReduceKind::sum, options).wait();
        },
        [](Group&, Buffer, const CallOptions&) {});
    const std::string late =
        "waiting for rank 1 (whose last collective on GPU memory is all_reduce #1 (sum of 100 "
        "f32))";
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("all_reduce #2 on GPU memory (sum of 100 f32) of group 'world' has not "
                          "ended on the GPU for "));
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr(late));
  }
}

/// Rank 1 leaves before its next heartbeat, while rank 0 does something else for longer than the
/// timeout of the call.
TEST_F(DirectCalls, AMemberThatLeavesAfterItsLastCallIsNotLate) {
  const auto texts = testing::run_failing_ranks(
      2,
      [this](Context& context) {
        RankOnDevice rank(context, device_);
        context.world()->barrier().wait();
        rank.call(std::chrono::milliseconds(300));
        rank.stream.finish();
        if (context.rank() == 1) return;
        // Longer than the timeout, and than the interval of heartbeats.
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        EXPECT_EQ(rank.group.failure(), "");
      },
      [](int) {
        Config config = testing::test_config();
        config.liveness_interval = 40;  // a heartbeat each second
        return config;
      });
  EXPECT_THAT(texts, ::testing::Each(""));
}

#ifdef __linux__
/// Between these two hosts, sums that pass through the host would be compressed.
TEST(DirectCallsOfProcesses, CompressionThatDevicesDoNotUseIsLogged) {
  const testing::Hosts hosts;
  if (!hosts.ready()) GTEST_SKIP() << "`ip netns` cannot make hosts here (it needs root)";
  testing::Processes ranks(2,
                           [](Context& context, const testing::Processes::Say& say) {
                             const auto device = std::make_shared<DeviceDouble>();
                             device::replace_maker(DeviceKind::cuda,
                                                   [&device](int) { return device; });
                             auto& group = dynamic_cast<native::NativeGroup&>(*context.world());
                             group.use(std::make_shared<PathDouble>(device));
                             ::testing::internal::CaptureStderr();
                             {
                               DeviceDouble::Queue stream(*device);
                               constexpr std::size_t kLong = 100'000;
                               const auto memory = device->allocate(kLong * sizeof(float));
                               const Buffer data{memory->outside(), kLong, DType::f32, kDevice};
                               for (int call = 0; call < 2; ++call) {
                                 group.all_reduce(data, data, ReduceKind::sum,
                                                  {.caller_waits = true, .stream = &stream});
                               }
                               stream.finish();
                             }
                             say(::testing::internal::GetCapturedStderr());
                             context.world()->barrier().wait();
                           },
                           {.store_address = "10.77.0.1:29400",
                            .config_of =
                                [](int) {
                                  Config config = testing::test_config();
                                  config.compression = "bf16";
                                  config.log_level = "WARN";
                                  return config;
                                },
                            .enter = [&](int rank) { hosts.enter(rank); }});
  const std::string said = ranks.line(0);
  const std::size_t first = said.find("do not use the group's compression");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("do not use the group's compression", first + 1), std::string::npos) << said;
  EXPECT_EQ(ranks.line(1), "") << "one rank logs for all";
  ranks.expect_good_end();
}
#endif

/// No host call is in flight. The rank's death must end the device call nevertheless.
TEST(DirectCallsOfProcesses, ADeathEndsCallsOnTheDevice) {
  testing::Processes ranks(2, [](Context& context, const testing::Processes::Say& say) {
    context.world()->barrier().wait();
    if (context.rank() == 1) {
      say("there");
      while (true) ::pause();
    }
    const auto device = std::make_shared<DeviceDouble>();
    device::replace_maker(DeviceKind::cuda, [&device](int) { return device; });
    RankOnDevice on_device(context, device);
    on_device.path->hold_calls();
    on_device.call();
    say("waits");
    on_device.stream.finish();
    say(on_device.path->aborted ? on_device.group.failure() : "it was not ended");
  });
  EXPECT_EQ(ranks.line(1), "there");
  EXPECT_EQ(ranks.line(0), "waits");
  ranks.signal(1, SIGKILL);
  EXPECT_THAT(ranks.line(0), HasSubstr("rank 1 is gone"));
}

}  // namespace
}  // namespace mccl
