// Tests collectives by NCCL, with a substitute that records calls: which calls are made, on which
// communicator, and how ranks fail if NCCL is unusable.
#include "loaded/doubles/nccl.h"

#include <dlfcn.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "device/cuda/gpu.h"
#include "device/registry.h"
#include "support/device_double.h"
#include "support/processes.h"

namespace mccl {
namespace {

using testing::DeviceDouble;
using ::testing::HasSubstr;
using testing::NcclDouble;
using testing::Processes;

constexpr std::size_t kCount = 100;
constexpr Device kDevice{DeviceKind::cuda, 0};

void* load(const std::string& file) {
  void* const library = ::dlopen((MCCL_DOUBLES "/" + file).c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) throw Error(::dlerror());
  return library;
}

/// The simulated device of this process.
std::shared_ptr<DeviceDouble> gpu;
NcclDouble* nccl = nullptr;

std::string calls() { return fmt::format("{}", fmt::join(nccl->seen(), ", ")); }

/// Returns the result of an all_reduce of ones, which is one if the NCCL substitute handles it.
float all_reduce(Group& group, Device device = kDevice) {
  DeviceDouble::Queue stream(*gpu);
  const auto memory = gpu->allocate(kCount * sizeof(float));
  auto* const inside = reinterpret_cast<float*>(memory->inside());
  stream.enqueue([inside] { std::fill_n(inside, kCount, 1.0F); });
  const Buffer data{memory->outside(), kCount, DType::f32, device};
  const Work work = group.all_reduce(
      data, data, ReduceKind::sum,
      {.caller_waits = true, .may_meet = true, .stream = &stream, .stream_may_go = true});
  work.wait_on_stream(&stream);
  float found = 0;
  stream.enqueue([&] { found = inside[kCount - 1]; });
  stream.finish();
  return found;
}

/// Starts ranks with one GPU each and both substitute libraries.
struct Job {
  std::string backend = "nccl";
  std::function<void(int rank)> change = [](int) {};

  Processes start(int ranks, const Processes::Body& body) const {
    Processes::Options options;
    options.config_of = [by = backend](int) {
      Config config = testing::test_config();
      config.backend = by;
      return config;
    };
    options.enter = [*this](int rank) {
      load("libcuda.so.1");
      gpu = std::make_shared<DeviceDouble>();
      gpu->plugged_into = fmt::format("0000:{:02}:00.0", rank);
      device::replace_maker(DeviceKind::cuda, [](int) { return gpu; });
      nccl =
          reinterpret_cast<NcclDouble* (*)()>(::dlsym(load("libnccl.so.2"), "mccl_nccl_double"))();
      change(rank);
    };
    return {ranks, body, options};
  }
};

void say_call(Context& context, const Processes::Say& say) {
  const float found = all_reduce(*context.world());
  say(fmt::format("{}: {}", found, calls()));
}

TEST(Nccl, AGroupConnectsAndUsesIt) {
  Processes ranks = Job{}.start(2, say_call);
  EXPECT_EQ(ranks.line(0), "1: GetUniqueId, CommInit 0 of 2, AllReduce 100 by 1");
  EXPECT_EQ(ranks.line(1), "1: CommInit 1 of 2, AllReduce 100 by 1");
  ranks.expect_good_end();
}

TEST(Nccl, PartsOfAConnectedGroupSplitItsCommunicator) {
  Processes ranks = Job{}.start(3, [](Context& context, const Processes::Say& say) {
    Group& world = *context.world();
    all_reduce(world);
    // The part has ranks 2 and 0, in this order; rank 1 is in none.
    const auto part = world.split(context.rank() == 1 ? -1 : 5, -context.rank());
    if (part) all_reduce(*part);
    const auto seen = nccl->seen();
    const auto begin = std::find_if(seen.begin(), seen.end(), [](const std::string& call) {
      return call.starts_with("AllReduce");
    });
    say(fmt::format("{}", fmt::join(begin + 1, seen.end(), ", ")));
  });
  EXPECT_EQ(ranks.line(0), "CommSplit 1 color 5 key 1, AllReduce 100 by 2");
  EXPECT_EQ(ranks.line(1), "CommSplit 1 color -1 key 0");
  EXPECT_EQ(ranks.line(2), "CommSplit 1 color 5 key 0, AllReduce 100 by 2");
  ranks.expect_good_end();
}

TEST(Nccl, PartsOfAnUnconnectedGroupConnectSeparately) {
  Processes ranks = Job{}.start(2, [](Context& context, const Processes::Say& say) {
    const auto part = context.world()->split(0, 0);
    all_reduce(*part);
    say(calls());
  });
  EXPECT_EQ(ranks.line(0), "GetUniqueId, CommInit 0 of 2, AllReduce 100 by 1");
  EXPECT_EQ(ranks.line(1), "CommInit 1 of 2, AllReduce 100 by 1");
  ranks.expect_good_end();
}

TEST(Nccl, DifferentVersionsFallBackToTheHost) {
  Job job;
  job.change = [](int rank) { nccl->version = rank == 1 ? 22703 : 22809; };
  Processes ranks = job.start(3, say_call);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.line(rank), "3: ") << rank;
  ranks.expect_good_end();
}

TEST(Nccl, TwoRanksOnOneGpuFallBackToTheHost) {
  Job job;
  job.change = [](int) { gpu->plugged_into = "0000:07:00.0"; };
  Processes ranks = job.start(2, say_call);
  EXPECT_EQ(ranks.line(0), "2: ");
  EXPECT_EQ(ranks.line(1), "2: ");
  ranks.expect_good_end();
}

/// Makes NCCL too old on rank 1. A missing NCCL is handled alike, but a machine that has NCCL
/// cannot test that case.
void make_too_old(int rank) {
  if (rank == 1) nccl->version = 21704;
}

TEST(Nccl, ReportsAVersionThatIsTooOld) {
  Job job;
  job.change = make_too_old;
  Processes ranks = job.start(2, say_call);
  EXPECT_THAT(ranks.line(1), HasSubstr("is older than 2.18; install 2.18 or later"));
  EXPECT_THAT(ranks.line(0), HasSubstr("rank 1"));
}

TEST(Nccl, AutoFallsBackToTheHostIfOneRankLacksIt) {
  Job job;
  job.backend = "auto";
  job.change = make_too_old;
  Processes ranks = job.start(2, say_call);
  EXPECT_EQ(ranks.line(0), "2: ");
  EXPECT_EQ(ranks.line(1), "2: ");
  ranks.expect_good_end();
}

TEST(Nccl, ErrorsNameTheRankAndTheCall) {
  Job job;
  job.change = [](int rank) {
    if (rank != 1) return;
    nccl->fails = "CommInit";
    nccl->last_error = "no interface was found";
  };
  Processes ranks = job.start(2, say_call);
  EXPECT_THAT(ranks.line(1), HasSubstr("ncclCommInitRankConfig on rank 1 of group 'world': "
                                       "unhandled system error: no interface was found"));
}

TEST(Nccl, AnAsynchronousErrorFailsTheNextCall) {
  Processes ranks = Job{}.start(2, [](Context& context, const Processes::Say& say) {
    all_reduce(*context.world());
    context.world()->barrier().wait();
    nccl->asynchronous = 2;
    try {
      all_reduce(*context.world());
      say("nothing was thrown");
    } catch (const PeerError& error) {
      say(error.what());
    }
  });
  EXPECT_EQ(ranks.line(0),
            "all_reduce on rank 0 (cuda:0) cannot start: NCCL reports an error on rank 0: "
            "unhandled system error; NCCL_DEBUG=INFO shows its cause");
}

TEST(Nccl, ADeathEndsTheCommunicator) {
  Processes ranks = Job{}.start(2, [](Context& context, const Processes::Say& say) {
    all_reduce(*context.world());
    context.world()->barrier().wait();
    say("met");
    if (context.rank() == 1) {
      while (true) ::pause();
    }
    while (!calls().ends_with("CommAbort 1")) std::this_thread::yield();
    try {
      all_reduce(*context.world());
      say("nothing was thrown");
    } catch (const Error& error) {
      say(error.what());
    }
  });
  EXPECT_EQ(ranks.line(0), "met");
  EXPECT_EQ(ranks.line(1), "met");
  ranks.signal(1, SIGKILL);
  EXPECT_THAT(ranks.line(0), HasSubstr("rank 1 is gone"));
}

TEST(Gpus, NamesAMissingGpu) {
  Processes ranks = Job{}.start(1, [](Context&, const Processes::Say& say) {
    try {
      device::cuda::context_of(7);
    } catch (const InvalidArgument& error) {
      say(error.what());
    }
  });
  EXPECT_EQ(ranks.line(0),
            "there is no cuda:7: this process sees 2 GPUs, with numbers 0 to 1 (see "
            "CUDA_VISIBLE_DEVICES)");
}

}  // namespace
}  // namespace mccl
