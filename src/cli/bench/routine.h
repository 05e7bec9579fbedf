// The routines that rows of the table measure, the arithmetic of their sizes and bandwidths, as
// nccl-tests defines them, and the ranks that measure them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mccl/context.h"
#include "mccl/types.h"

namespace mccl::cli::bench {

/// A collective, or kSendrecv; never Collective::recv.
using Routine = Collective;
/// Every rank sends to the next rank and, at the same time, receives from the previous rank.
inline constexpr Routine kSendrecv = Collective::send;

struct RoutineInfo {
  Routine routine;
  std::string_view name;  ///< The name that mccl bench uses: "sendrecv" for kSendrecv.
  bool reduces = false;
  bool rooted = false;
  /// True if a call has one part per rank. A row's size is then the size of all parts together.
  bool in_parts = false;
  bool out_of_place = true;
  bool in_place = true;
};

/// Routines in the order in which "all" runs them.
std::span<const RoutineInfo> routines();
const RoutineInfo& info_of(Routine routine);

/// Parses names, or "all". Throws InvalidArgument for an unknown name; the message does not suggest
/// `unfit`, a routine that the command does not support.
std::vector<Routine> parse_routines(std::span<const std::string_view> names,
                                    std::optional<Routine> unfit = {});

/// Parses "8,64K,1M" and ranges: "8:64M:x4" is 8, 32, 128 … up to 64M. Without a factor, the sizes
/// of a range double. Returns the sizes in the order of the text. Throws InvalidArgument for any
/// other text, or for more than 1000 sizes.
std::vector<std::size_t> parse_sizes(std::string_view text);

/// Returns busbw divided by algbw.
double bus_factor(Routine routine, int ranks);

struct CallSize {
  std::size_t part = 0;   ///< Elements in one rank's part; `total` if the routine has no parts.
  std::size_t total = 0;  ///< Elements of the whole operation.
  std::size_t bytes = 0;  ///< Bytes of the whole operation.
};

/// Returns the largest call of at most `bytes` bytes, but with at least one element, or one per
/// rank if the routine has parts; all zeros for a barrier.
CallSize shape_of(Routine routine, std::size_t bytes, DType dtype, int ranks);

/// Options of a run of `mccl bench`. They must be equal on all ranks.
struct Options {
  std::vector<Routine> routines;
  std::vector<std::size_t> sizes;
  DType dtype = DType::f32;
  ReduceOp op;
  int root = 0;
  bool check = true;
  bool bounds = true;
  bool shared_buffers = false;   ///< True to call with memory from Context::allocate().
  bool overlap = false;          ///< True to measure each call beside a computation too.
  double seconds = 0.2;          ///< Time to spend on each half of a row.
  std::uint64_t iterations = 0;  ///< Number of timed calls; 0: as many as `seconds` allows.
  std::uint64_t warmup = 5;
  bool quiet = false;  ///< True if nothing is printed.
  std::string json;    ///< Path of the JSON file to write; empty for none.
  std::string csv;     ///< Path of the CSV file to write; empty for none.
};

/// Returns the size of the largest call, in bytes.
std::size_t largest_call(const Options& options, int ranks);

/// The flags that describe calls, as the user gave them.
struct CallFlags {
  std::vector<std::string> routines;
  std::string sizes = "8,1K,64K,1M,16M,64M";
  std::string dtype = "f32";
  std::string op = "sum";
  int root = 0;
};

/// Adds "collective", --sizes, --dtype, --op and --root, which must be below `most_ranks`.
/// `further` follows the names of the collectives in the help.
void add_flags(CLI::App& app, CallFlags& flags, const std::string& further, int most_ranks);

/// Returns `options` with the calls that the flags describe. `unfit`: see parse_routines().
Options parse_calls(const CallFlags& flags, Options options = {},
                    std::optional<Routine> unfit = {});

/// Rank 0 prints the results and writes the files, then throws Error if elements were wrong or if
/// the requested algorithm does not support a call.
void run_rank(Context& context, const Options& options, bool one_host);

/// Runs this program with `arguments` in `ranks` processes of this machine, with its standard
/// output and error. If `overlaps` is false, each rank has one core, unless other threads encrypt.
/// `command` begins each message of the launcher. Returns 0, or 1 if a rank failed. If a signal to
/// this process ends the job, the same signal then kills this process.
int run_here(int ranks, const std::string& command, const std::vector<std::string>& arguments,
             bool overlaps = false);

}  // namespace mccl::cli::bench
