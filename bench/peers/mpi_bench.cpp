// Times the collectives of an MPI library. This source is compiled for each MPI library:
//
//   mpirun -n 2 mpi_bench --seconds 0.2 all_reduce:8 all_reduce:65536 broadcast:8 …
//
// A cell is a collective and the bytes of its larger buffer on a rank (the result of an all-gather,
// the root's buffer of a scatter). `--seconds` is the target time of a cell. A cell whose calls
// take over two seconds is called once. Rank 0 prints JSON lines: the cell that begins, then its
// figures. `time_us` is the mean of a batch of calls in a row on the slowest rank (median of the
// batches). `p50_us` and `p99_us` are of single calls on rank 0. `mccl bench` defines these names
// in the same way.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSlowCall = 2.0;       ///< Seconds after which a cell makes no further call.
constexpr int kBatches = 20;            ///< Target number of batches per cell.
constexpr std::size_t kMinBatches = 3;  ///< Minimum; a cell that takes kSlowCall ends earlier.
constexpr int kMaxCalls = 2000;         ///< Maximum per batch.

struct Cell {
  std::string collective;
  std::size_t bytes = 0;
};

struct World {
  int rank = 0;
  int size = 1;
};

/// Buffers of one cell. Zeros stay zeros, so operands do not depend on earlier calls.
struct Memory {
  std::vector<float> in;
  std::vector<float> out;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Cell parse_cell(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) {
    std::fprintf(stderr, "mpi_bench: '%s' is not COLLECTIVE:BYTES\n", text.c_str());
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  return {text.substr(0, colon), std::strtoull(text.c_str() + colon + 1, nullptr, 10)};
}

/// Returns the number of floats in the larger buffer, rounded up to equal parts per rank if needed.
std::size_t elements_of(const Cell& cell, const World& world) {
  const std::size_t elements = std::max<std::size_t>(1, cell.bytes / sizeof(float));
  if (cell.collective == "all_reduce" || cell.collective == "broadcast" ||
      cell.collective == "reduce" || cell.collective == "sendrecv")
    return elements;
  const auto ranks = static_cast<std::size_t>(world.size);
  return (elements + ranks - 1) / ranks * ranks;
}

/// Returns a call of the cell's collective, or an empty function if the name is unknown.
std::function<void()> call_of(const Cell& cell, const World& world, Memory& memory) {
  const std::size_t elements = elements_of(cell, world);
  const int whole = static_cast<int>(elements);
  const int part = static_cast<int>(elements / static_cast<std::size_t>(world.size));
  memory.in.assign(elements, 0.0F);
  memory.out.assign(elements, 0.0F);
  float* in = memory.in.data();
  float* out = memory.out.data();
  const MPI_Comm comm = MPI_COMM_WORLD;
  if (cell.collective == "all_reduce")
    return [=] { MPI_Allreduce(MPI_IN_PLACE, out, whole, MPI_FLOAT, MPI_SUM, comm); };
  if (cell.collective == "broadcast") return [=] { MPI_Bcast(out, whole, MPI_FLOAT, 0, comm); };
  if (cell.collective == "reduce")
    return [=, root = world.rank == 0] {
      MPI_Reduce(root ? MPI_IN_PLACE : out, out, whole, MPI_FLOAT, MPI_SUM, 0, comm);
    };
  if (cell.collective == "all_gather")
    return [=] { MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, comm); };
  if (cell.collective == "reduce_scatter")
    return [=] { MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, comm); };
  if (cell.collective == "all_to_all")
    return [=] { MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, comm); };
  if (cell.collective == "gather")
    return [=] { MPI_Gather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, 0, comm); };
  if (cell.collective == "scatter")
    return [=] { MPI_Scatter(in, part, MPI_FLOAT, out, part, MPI_FLOAT, 0, comm); };
  if (cell.collective == "sendrecv")
    return [=, next = (world.rank + 1) % world.size,
            previous = (world.rank + world.size - 1) % world.size] {
      MPI_Sendrecv(in, whole, MPI_FLOAT, next, 0, out, whole, MPI_FLOAT, previous, 0, comm,
                   MPI_STATUS_IGNORE);
    };
  if (cell.collective == "barrier") return [=] { MPI_Barrier(comm); };
  return {};
}

struct Times {
  std::vector<double> calls;    ///< Seconds of each call.
  std::vector<double> batches;  ///< Mean seconds per call of each batch.
};

std::vector<double> slowest_of(const std::vector<double>& mine) {
  std::vector<double> slowest(mine.size());
  MPI_Reduce(mine.data(), slowest.data(), static_cast<int>(mine.size()), MPI_DOUBLE, MPI_MAX, 0,
             MPI_COMM_WORLD);
  return slowest;
}

/// Makes `calls` calls in a row, and adds their times to `times`.
void run_batch(const std::function<void()>& call, int calls, Times& times) {
  MPI_Barrier(MPI_COMM_WORLD);
  const Clock::time_point begin = Clock::now();
  Clock::time_point before = begin;
  for (int done = 0; done < calls; ++done) {
    call();
    const Clock::time_point after = Clock::now();
    times.calls.push_back(std::chrono::duration<double>(after - before).count());
    before = after;
  }
  times.batches.push_back(std::chrono::duration<double>(before - begin).count() / calls);
}

/// Returns the number of calls in the next batch, for kBatches in `seconds`; 0 ends the cell. Rank
/// 0 decides for all ranks.
int agreed_calls(const Times& times, double spent, double seconds) {
  int calls = 0;
  const bool enough = times.batches.size() >= kMinBatches && spent >= seconds;
  if (!enough && spent < kSlowCall) {
    const double pace = *std::min_element(times.batches.begin(), times.batches.end());
    calls = static_cast<int>(std::clamp(seconds / kBatches / pace, 1.0, 1.0 * kMaxCalls));
  }
  MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return calls;
}

double at_share(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<std::size_t>(values.size() * share))];
}

void print_found(const Cell& cell, const Times& times) {
  std::printf(
      "{\"collective\": \"%s\", \"bytes\": %zu, \"time_us\": %.4f, \"p50_us\": %.4f, "
      "\"p99_us\": %.4f, \"calls\": %zu}\n",
      cell.collective.c_str(), cell.bytes, at_share(times.batches, 0.5) * 1e6,
      at_share(times.calls, 0.5) * 1e6, at_share(times.calls, 0.99) * 1e6, times.calls.size());
  std::fflush(stdout);
}

void measure(const Cell& cell, double seconds, const World& world) {
  if (world.rank == 0) {
    std::printf("{\"begin\": \"%s:%zu\"}\n", cell.collective.c_str(), cell.bytes);
    std::fflush(stdout);
  }
  Memory memory;
  const std::function<void()> call = call_of(cell, world, memory);
  if (!call) {
    if (world.rank == 0)
      std::printf("{\"collective\": \"%s\", \"bytes\": %zu, \"absent\": \"MPI has none\"}\n",
                  cell.collective.c_str(), cell.bytes);
    return;
  }
  // The first call makes connections and touches memory. It counts only if no other call follows.
  Times first;
  run_batch(call, 1, first);
  Clock::time_point begin = Clock::now();
  Times times;
  for (int calls = agreed_calls(first, first.batches[0], seconds); calls > 0;
       calls = agreed_calls(times, seconds_since(begin), seconds))
    run_batch(call, calls, times);
  if (times.calls.empty()) times = first;
  times.batches = slowest_of(times.batches);
  if (world.rank == 0) print_found(cell, times);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  World world;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.size);
  if (argc < 4 || std::string(argv[1]) != "--seconds") {
    if (world.rank == 0)
      std::fprintf(stderr, "usage: mpi_bench --seconds SECONDS COLLECTIVE:BYTES…\n");
    MPI_Finalize();
    return 2;
  }
  const double seconds = std::atof(argv[2]);
  for (int index = 3; index < argc; ++index) measure(parse_cell(argv[index]), seconds, world);
  MPI_Finalize();
  return 0;
}
