#include "cli/bench/routine.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/nearest.h"
#include "base/value_text.h"
#include "cli/bench/pattern.h"
#include "cli/command.h"
#include "cluster/text.h"
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
    {.routine = kSendrecv, .name = "sendrecv", .in_place = false},
    {.routine = Routine::barrier, .name = "barrier", .in_place = false},
};

constexpr std::size_t kLargest = std::size_t{1} << 40;
constexpr std::size_t kMostSizes = 1000;
constexpr std::int64_t kLargestFactor = 1 << 20;

[[noreturn]] void refuse(std::string_view found, std::string_view why) {
  throw InvalidArgument(
      fmt::format("--sizes: {}: {}; expected sizes such as 8,64K,1M or a range such as 8:64M:x4",
                  in_quotes(found), why));
}

std::size_t size_of_text(std::string_view text) {
  const std::optional<std::uint64_t> bytes = parse_bytes(text);
  if (!bytes) refuse(text, "not a number of bytes");
  if (*bytes == 0) refuse(text, "nothing to measure");
  if (*bytes > kLargest) refuse(text, "more than 1024G");
  return static_cast<std::size_t>(*bytes);
}

std::size_t factor_of(std::string_view text, std::string_view whole) {
  const auto factor = text.starts_with('x') ? parse_integer(text.substr(1)) : std::nullopt;
  if (!factor || *factor < 2 || *factor > kLargestFactor)
    refuse(whole, "a range grows by a factor of 2 or more, such as x4");
  return static_cast<std::size_t>(*factor);
}

/// Adds the sizes of a range. `parts` are the parts of `whole` between its colons.
void add_range(std::string_view whole, std::span<const std::string_view> parts,
               std::vector<std::size_t>& sizes) {
  const std::size_t first = size_of_text(parts[0]);
  const std::size_t last = size_of_text(parts[1]);
  std::size_t factor = 2;
  if (parts.size() > 2) factor = factor_of(parts.size() == 3 ? parts[2] : "", whole);
  if (last < first) refuse(whole, "the range ends below its start");
  for (std::size_t size = first; size <= last; size *= factor) sizes.push_back(size);
}

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

CallSize shape_of(Routine routine, std::size_t bytes, DType dtype, int ranks) {
  if (routine == Routine::barrier) return {};
  const std::size_t parts = info_of(routine).in_parts ? static_cast<std::size_t>(ranks) : 1;
  const std::size_t part = std::max<std::size_t>(1, bytes / size_of(dtype) / parts);
  return {part, part * parts, part * parts * size_of(dtype)};
}

std::size_t largest_call(const Options& options, int ranks) {
  std::size_t bytes = 0;
  for (const Routine routine : options.routines) {
    for (const std::size_t size : options.sizes)
      bytes = std::max(bytes, shape_of(routine, size, options.dtype, ranks).bytes);
  }
  return bytes;
}

std::vector<std::size_t> parse_sizes(std::string_view text) {
  std::vector<std::size_t> sizes;
  if (text.empty() || text.ends_with(',')) refuse(text, "a size is missing");
  for (const std::string_view part : cluster::split(text, ',')) {
    const auto parts = cluster::split(part, ':');
    if (parts.size() == 1) {
      sizes.push_back(size_of_text(part));
    } else {
      add_range(part, parts, sizes);
    }
    if (sizes.size() > kMostSizes) refuse(text, "more than 1000 sizes");
  }
  return sizes;
}

void add_flags(CLI::App& app, CallFlags& flags, const std::string& further, int most_ranks) {
  app.add_option("collective", flags.routines,
                 "all_reduce (default), all_gather, reduce_scatter, all_to_all, broadcast,\n"
                 "reduce, gather, scatter, " +
                     further)
      ->delimiter(',')
      ->option_text("...");
  add_value(app, "-s,--sizes SIZES", flags.sizes,
            "Bytes, in units of 1024 (1M, 1MB and 1MiB are the same), such as\n8,64K,1M; also "
            "ranges, such as 8:64M:x4; default " +
                flags.sizes);
  add_value(app, "--dtype TYPE", flags.dtype,
            "Type of an element: f32 (default), f64, f16, bf16, i8 to i64,\n"
            "u8 to u64, bool, c64, c128");
  add_value(app, "--op OP", flags.op,
            "Reduction: sum (default), avg, product, min, max, band, bor, bxor,\npremul_sum");
  add_value(app, "--root RANK", flags.root, "Root of rooted collectives; default 0",
            integer_between(0, most_ranks - 1));
}

Options parse_calls(const CallFlags& flags, Options options, std::optional<Routine> unfit) {
  std::vector<std::string_view> names(flags.routines.begin(), flags.routines.end());
  if (names.empty()) names.push_back("all_reduce");
  options.routines = parse_routines(names, unfit);
  options.sizes = parse_sizes(flags.sizes);
  options.dtype = kind_of<DType>("--dtype", flags.dtype, kDTypeCount);
  options.op = kind_of<ReduceKind>("--op", flags.op, kReduceKindCount);
  if (options.op.kind == ReduceKind::premul_sum) options.op.factor = kPremulFactor;
  options.root = flags.root;
  const bool reduces = std::ranges::any_of(
      options.routines, [](Routine routine) { return info_of(routine).reduces; });
  if (reduces && !supports(options.dtype, options.op.kind)) {
    throw InvalidArgument(
        fmt::format("--op {} is not defined for --dtype {}", flags.op, flags.dtype));
  }
  return options;
}

}  // namespace mccl::cli::bench
