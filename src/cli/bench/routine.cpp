#include "cli/bench/routine.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/nearest.h"
#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::cli::bench {
namespace {

constexpr std::string_view kAll = "all";

constexpr RoutineInfo kRoutines[] = {
    {.routine = Routine::all_reduce, .name = "all_reduce", .reduces = true},
    {.routine = Routine::all_gather, .name = "all_gather", .in_parts = true},
    {.routine = Routine::reduce_scatter,
     .name = "reduce_scatter",
     .reduces = true,
     .in_parts = true},
    {.routine = Routine::all_to_all, .name = "all_to_all", .in_parts = true, .in_place = false},
    {.routine = Routine::broadcast, .name = "broadcast", .rooted = true, .out_of_place = false},
    {.routine = Routine::reduce, .name = "reduce", .reduces = true, .rooted = true},
    {.routine = Routine::gather, .name = "gather", .rooted = true, .in_parts = true},
    {.routine = Routine::scatter, .name = "scatter", .rooted = true, .in_parts = true},
    {.routine = Routine::sendrecv, .name = "sendrecv", .in_place = false},
    {.routine = Routine::barrier, .name = "barrier", .in_place = false},
};

}  // namespace

std::span<const RoutineInfo> routines() { return kRoutines; }

const RoutineInfo& info_of(Routine routine) {
  return *std::ranges::find(kRoutines, routine, &RoutineInfo::routine);
}

std::vector<Routine> parse_routines(std::span<const std::string_view> names,
                                    std::optional<Routine> unfit) {
  std::vector<Routine> result;
  for (const std::string_view name : names) {
    const auto found = std::ranges::find(kRoutines, name, &RoutineInfo::name);
    if (found != std::end(kRoutines)) {
      result.push_back(found->routine);
    } else if (name == kAll) {
      std::ranges::transform(kRoutines, std::back_inserter(result), &RoutineInfo::routine);
    } else {
      std::vector<std::string_view> known = {kAll};
      for (const RoutineInfo& info : kRoutines)
        if (info.routine != unfit) known.push_back(info.name);
      throw InvalidArgument(
          fmt::format("{} is not a collective; {}", in_quotes(name), choices_near(name, known)));
    }
  }
  return result;
}

double bus_factor(Routine routine, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (routine == Routine::all_reduce) return 2 * others;
  return info_of(routine).in_parts ? others : 1;
}

Shape shape_of(Routine routine, std::size_t bytes, DType dtype, int ranks) {
  if (routine == Routine::barrier) return {};
  const std::size_t parts = info_of(routine).in_parts ? static_cast<std::size_t>(ranks) : 1;
  const std::size_t part = std::max<std::size_t>(1, bytes / size_of(dtype) / parts);
  return {part, part * parts, part * parts * size_of(dtype)};
}

}  // namespace mccl::cli::bench
