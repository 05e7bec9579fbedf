// A rank that is killed while the others wait for another rank, which is late: a rank that saves a
// checkpoint comes to the next call long after the others.
#include "support/processes.h"

namespace mccl {
namespace {

using testing::Processes;
using testing::test_config;

struct Scene {
  const char* name;
  const char* transport;
  const char* algorithm;
  void (*call)(Group& group);
};

void PrintTo(const Scene& scene, std::ostream* stream) { *stream << scene.name; }

template <std::size_t kCount>
void all_reduce(Group& group) {
  std::vector<float> data(kCount, 1);
  const Buffer buffer{data.data(), kCount, DType::f32};
  group.all_reduce(buffer, buffer, ReduceKind::sum).wait();
}

void all_to_all(Group& group) {
  std::vector<float> in(400'000), out(400'000);
  group.all_to_all({in.data(), in.size(), DType::f32}, {out.data(), out.size(), DType::f32}).wait();
}

class KilledBehindALateOne : public ::testing::TestWithParam<Scene> {};

TEST_P(KilledBehindALateOne, EndsTheCallOfEveryRankThatWaits) {
  const Scene scene = GetParam();
  Processes job(4,
                [scene](Context& context, const Processes::Say& say) {
                  scene.call(*context.world());
                  if (context.rank() == 1) {
                    say("late");
                    for (;;) ::pause();
                  }
                  if (context.rank() != 2) say("waits");
                  scene.call(*context.world());
                },
                {.store_address = {},
                 .config_of =
                     [scene](int) {
                       Config config = test_config();
                       config.transport = scene.transport;
                       config.algorithm = scene.algorithm;
                       config.calibrate = false;
                       config.timeout = 1800;
                       return config;
                     },
                 .enter = {},
                 .at_the_store = {}});
  ASSERT_EQ(job.line(1), "late");
  for (const int rank : {0, 3}) ASSERT_EQ(job.line(rank), "waits");
  job.signal(2, SIGKILL);
  for (const int rank : {0, 3}) {
    const std::string error = job.line(rank, std::chrono::seconds(10));
    EXPECT_NE(error.find("rank 2 is gone"), std::string::npos) << error;
  }
}

INSTANTIATE_TEST_SUITE_P(
    In, KilledBehindALateOne,
    ::testing::Values(Scene{"a_window", "shm", "auto", all_reduce<40'000>},
                      Scene{"a_ring_of_memory", "shm", "ring", all_reduce<2'000'000>},
                      Scene{"blocks_in_memory", "shm", "auto", all_to_all},
                      Scene{"a_ring_of_sockets", "tcp", "ring", all_reduce<2'000'000>},
                      Scene{"small_calls_over_sockets", "tcp", "auto", all_reduce<40'000>},
                      Scene{"blocks_over_sockets", "tcp", "auto", all_to_all}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mccl
