// Measures the time that MCCL's mpi backend adds to the MPI call that it makes. Both run in one
// process, on the same memory, in turns, so that disturbances affect both.
//
//   mpirun -n 2 mpi_layer --seconds 1 layer_openmpi 8 65536 67108864
//
// Sizes are bytes of an in-place all-reduce of f32. Rank 0 prints two lines per size for
// bench/compare.py, under the given name:
// - `mpi-call`: the call that the backend makes. With Open MPI this is MPI_Allreduce from 1 MiB on.
//   Otherwise it is MPI_Iallreduce, followed by MPI_Test until it is done.
// - `mccl-mpi`: Group::all_reduce whose caller waits.
//
// `time_us` is the quickest turn, because disturbances only slow turns down. `p50_us` is the
// median. The second line also has `layer_us` and `other_us`. `layer_us` is the median of the
// backend's time minus the call's in the same turn. `other_us` is the time of the form of MPI call,
// blocking or not, that the backend does not use.
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

double least(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

/// Returns seconds per call on the slowest rank.
double time_of(const Call& call, int calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < calls; ++i) call();
  double mine = std::chrono::duration<double>(Clock::now() - begin).count() / calls;
  double slowest = 0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

bool is_open_mpi() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  return std::string(text).starts_with("Open MPI");
}

/// Prints the beginning of a JSON line, which the caller ends.
void print(const char* contestant, const char* cell, std::size_t bytes,
           const std::vector<double>& times) {
  std::printf(
      "{\"contestant\": \"%s\", \"collective\": \"%s\", \"bytes\": %zu, \"time_us\": %.3f, "
      "\"p50_us\": %.3f",
      contestant, cell, bytes, least(times) * 1e6, median(times) * 1e6);
}

void measure(mccl::Group& group, MPI_Comm comm, const char* cell, std::size_t bytes,
             double seconds) {
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
  constexpr std::size_t kLarge = 1 << 20;
  const int made = is_open_mpi() && bytes >= kLarge ? 0 : 1;
  double pace = 0;
  for (const Call& call : calls) {
    time_of(call, 3);  // Makes connections and touches memory.
    pace += time_of(call, 3);
  }
  // On an idle machine, the quickest of 100 turns varies by less than half a percent; the quickest
  // of 40 turns varies more.
  const int turns = 101;
  int each = std::max(1, static_cast<int>(seconds / turns / std::max(pace, 1e-7)));
  MPI_Bcast(&each, 1, MPI_INT, 0, MPI_COMM_WORLD);
  std::vector<double> times[kWays];
  std::vector<double> more;
  for (int turn = 0; turn < turns; ++turn) {
    for (int i = 0; i < kWays; ++i) {
      const int way = (i + turn) % kWays;
      if (way == 1 - made && turn % 4 != 0) continue;  // The unused form needs fewer turns.
      times[way].push_back(time_of(calls[way], each));
    }
    more.push_back(times[2].back() - times[made].back());
  }
  if (group.rank() != 0) return;
  print("mpi-call", cell, bytes, times[made]);
  std::printf("}\n");
  print("mccl-mpi", cell, bytes, times[2]);
  std::printf(", \"layer_us\": %.3f, \"other_us\": %.3f}\n", median(more) * 1e6,
              least(times[1 - made]) * 1e6);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5 || std::string(argv[1]) != "--seconds") {
    std::fprintf(stderr, "usage: mpi_layer --seconds SECONDS NAME BYTES…\n");
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
    for (int i = 4; i < argc; ++i) {
      measure(*context->world(), comm, argv[3], std::strtoull(argv[i], nullptr, 10), seconds);
    }
    MPI_Comm_free(&comm);
  }
  MPI_Finalize();
  return 0;
}
