// What MCCL's mpi backend costs over the MPI library that it calls: both in one process, on the
// same memory, in turns, so that whatever else the machine does meets both.
//
//   mpirun -n 2 mpi_layer --seconds 1 8 65536 67108864
//
// Sizes are bytes of an all-reduce of f32 in place. Rank 0 prints a JSON line per size, in
// microseconds a call (median over the batches): `blocking_us` of MPI_Allreduce, `library_us` of
// MPI_Iallreduce and MPI_Test until it is done, which is what the backend calls, `mccl_us` of
// Group::all_reduce whose caller waits; `layer_us` and `over_blocking_us`, the medians over the
// turns of what mccl took longer than the second and than the first in the same turn.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "mccl/mccl.h"

namespace {

using Clock = std::chrono::steady_clock;
using Call = std::function<void()>;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Seconds a call, of the slowest rank.
double time_of(const Call& call, int calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < calls; ++i) call();
  double mine = std::chrono::duration<double>(Clock::now() - begin).count() / calls;
  double slowest = 0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

void measure(mccl::Group& group, MPI_Comm comm, std::size_t bytes, double seconds) {
  std::vector<float> data(std::max<std::size_t>(1, bytes / 4), 0.0F);
  const int count = static_cast<int>(data.size());
  float* memory = data.data();
  const mccl::Buffer buffer{memory, data.size(), mccl::DType::f32};
  const Call calls[] = {
      [=] { MPI_Allreduce(MPI_IN_PLACE, memory, count, MPI_FLOAT, MPI_SUM, comm); },
      [=] {
        MPI_Request request;
        MPI_Iallreduce(MPI_IN_PLACE, memory, count, MPI_FLOAT, MPI_SUM, comm, &request);
        for (int done = 0; !done;) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      },
      [&group, buffer] {
        group.all_reduce(buffer, buffer, mccl::ReduceKind::sum, {.caller_waits = true}).wait();
      }};
  constexpr int kWays = 3;
  double pace = 0;
  for (const Call& call : calls) {
    time_of(call, 3);  // makes connections, and touches memory
    pace += time_of(call, 3);
  }
  const int turns = 41;
  int each = std::max(1, static_cast<int>(seconds / turns / std::max(pace, 1e-7)));
  MPI_Bcast(&each, 1, MPI_INT, 0, MPI_COMM_WORLD);
  std::vector<double> times[kWays];
  std::vector<double> more;
  std::vector<double> more_than_blocking;
  for (int turn = 0; turn < turns; ++turn) {
    for (int i = 0; i < kWays; ++i) {
      const int way = (i + turn) % kWays;
      times[way].push_back(time_of(calls[way], each));
    }
    more.push_back(times[2].back() - times[1].back());
    more_than_blocking.push_back(times[2].back() - times[0].back());
  }
  if (group.rank() != 0) return;
  std::printf(
      "{\"bytes\": %zu, \"blocking_us\": %.3f, \"library_us\": %.3f, \"mccl_us\": %.3f, "
      "\"layer_us\": %.3f, \"over_blocking_us\": %.3f, \"calls\": %d}\n",
      bytes, median(times[0]) * 1e6, median(times[1]) * 1e6, median(times[2]) * 1e6,
      median(more) * 1e6, median(more_than_blocking) * 1e6, turns * each);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || std::string(argv[1]) != "--seconds") {
    std::fprintf(stderr, "usage: mpi_layer --seconds SECONDS BYTES…\n");
    return 2;
  }
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  {
    mccl::Config settings = mccl::Config::from_environment();
    settings.backend = "mpi";
    const auto context = mccl::Context::from_environment(settings);
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    const double seconds = std::atof(argv[2]);
    for (int i = 3; i < argc; ++i) {
      measure(*context->world(), comm, std::strtoull(argv[i], nullptr, 10), seconds);
    }
    MPI_Comm_free(&comm);
  }
  MPI_Finalize();
  return 0;
}
