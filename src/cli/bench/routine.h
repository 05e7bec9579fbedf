// The routines that rows of the table measure, and the arithmetic of their sizes and bandwidths, as
// nccl-tests defines them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mccl/types.h"

namespace mccl::cli::bench {

/// `sendrecv`: every rank sends to the next rank and, at the same time, receives from the previous
/// rank.
enum class Routine {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  reduce,
  gather,
  scatter,
  sendrecv,
  barrier,
};

struct RoutineInfo {
  Routine routine;
  std::string_view name;
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

/// Returns the collective that the routine calls; empty for sendrecv.
std::optional<Collective> collective_of(Routine routine);

/// Parses names, or "all". Throws InvalidArgument for an unknown name. The message suggests valid
/// names, but never `unfit`, a routine that the command does not support.
std::vector<Routine> parse_routines(std::span<const std::string_view> names,
                                    std::optional<Routine> unfit = {});

/// Parses "8,64K,1M" and ranges: "8:64M:x4" is 8, 32, 128 … up to 64M. Without a factor, the sizes
/// of a range double. Returns the sizes in the order of the text. Throws InvalidArgument for any
/// other text, or for more than 1000 sizes.
std::vector<std::size_t> parse_sizes(std::string_view text);

/// Returns busbw divided by algbw: the bytes that must cross the bus of one rank, as a multiple of
/// the size.
double bus_factor(Routine routine, int ranks);

/// Amount of data that one call moves.
struct CallSize {
  /// Number of elements in one rank's part; equal to `total` if the routine has no parts.
  std::size_t part = 0;
  std::size_t total = 0;  ///< Number of elements of the whole operation.
  std::size_t bytes = 0;  ///< Size of the whole operation, in bytes.
};

/// Returns the size of the largest call of at most `bytes` bytes; all zeros for a barrier. If
/// `bytes` is too small, the call has one element, or one per rank if the routine has parts.
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

/// Adds the argument "collective" and the flags --sizes, --dtype, --op and --root, which must be
/// below `most_ranks`. `further` follows the names of the collectives in the help.
void add_flags(CLI::App& app, CallFlags& flags, const std::string& further, int most_ranks);

/// Parses the flags, and returns `options` with the calls that they describe. Throws
/// InvalidArgument if a flag is invalid. `unfit`: see parse_routines().
Options parse_calls(const CallFlags& flags, Options options = {},
                    std::optional<Routine> unfit = {});

}  // namespace mccl::cli::bench
