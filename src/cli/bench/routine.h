// What a row of the table measures, and the arithmetic of its sizes and bandwidths, as nccl-tests
// defines them.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "mccl/types.h"

namespace mccl::cli::bench {

/// `sendrecv`: every rank sends to the next and receives from the one before, both at once.
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
  /// The size is that of all ranks' parts together.
  bool in_parts = false;
  bool out_of_place = true;
  bool in_place = true;
};

/// In the order in which "all" runs them.
std::span<const RoutineInfo> routines();
const RoutineInfo& info_of(Routine routine);

/// Names, or "all". Throws InvalidArgument with the nearest name, which is never `unfit`'s.
std::vector<Routine> parse_routines(std::span<const std::string_view> names,
                                    std::optional<Routine> unfit = {});

/// What busbw is, over algbw: the share of the bytes that must cross the bus of one rank.
double bus_factor(Routine routine, int ranks);

/// How much one call moves.
struct Shape {
  std::size_t part = 0;   ///< Elements of one rank's part; of everything when there are no parts.
  std::size_t total = 0;  ///< Elements of everything.
  std::size_t bytes = 0;  ///< Bytes of everything.
};

/// The largest shape of at most `bytes`, but at least one element (a rank, where there are parts).
Shape shape_of(Routine routine, std::size_t bytes, DType dtype, int ranks);

}  // namespace mccl::cli::bench
