#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "cli/bench/bounds.h"
#include "cli/kit/quantity.h"
#include "cluster/text.h"
#include "kernels/reduce.h"
#include "kernels/unit.h"
#include "mccl/config.h"
#include "mccl/error.h"

namespace mccl::cli::bench {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};
constexpr std::size_t kSizes[] = {std::size_t{64} << 10, std::size_t{1} << 20,
                                  std::size_t{16} << 20};
constexpr int kSamples = 7;
constexpr std::chrono::milliseconds kSample{4};

struct Implementation {
  const char* name;
  std::shared_ptr<kernels::Unit> unit;  ///< Null for MCCL's own kernels, or if `missing` is set.
  std::string missing;                  ///< The reason why `unit` could not be made; else empty.
};

Implementation way(const char* name, const std::function<std::shared_ptr<kernels::Unit>()>& make) {
  try {
    return {name, make(), {}};
  } catch (const InvalidArgument& error) {
    return {name, nullptr, error.what()};
  }
}

/// Returns the best rate of kSamples samples, in GB of the result per second. Returns 0 if the unit
/// does not support the type.
double rate_of(const Implementation& way, DType dtype, std::vector<std::byte>& a,
               const std::vector<std::byte>& b) {
  const std::size_t n = a.size() / size_of(dtype);
  const auto sum = [&] {
    if (way.unit) return way.unit->reduce(dtype, ReduceKind::sum, a.data(), b.data(), a.data(), n);
    kernels::reduce(dtype, ReduceKind::sum, a.data(), b.data(), a.data(), n);
    return true;
  };
  if (!sum()) return 0;
  double best = std::numeric_limits<double>::max();
  for (int sample = 0; sample < kSamples; ++sample) {
    const Clock::time_point begin = Clock::now();
    int times = 0;
    for (; Clock::now() - begin < kSample; ++times) sum();
    const std::chrono::duration<double> taken = Clock::now() - begin;
    best = std::min(best, taken.count() / times);
  }
  return static_cast<double>(a.size()) / best / 1e9;
}

}  // namespace

std::string kernels_text(const Config& config) {
  const Implementation ways[] = {
      {"own", nullptr, {}},
      way("accelerate", [] { return kernels::make_accelerate(); }),
      way("gpu", [&] {
        return kernels::make_reducer({config.fast_math, config.shader_path});
      })};
  cluster::TableRows rows = {{"# type", "size"}};
  for (const Implementation& each : ways) rows.front().emplace_back(each.name);
  for (const DType dtype : kTypes) {
    for (const std::size_t bytes : kSizes) {
      std::vector<std::byte> a(bytes);
      const std::vector<std::byte> b(bytes);
      std::vector<std::string>& row =
          rows.emplace_back(std::vector{std::string(name_of(dtype)), text_of_size(bytes)});
      for (const Implementation& each : ways) {
        const double rate = each.missing.empty() ? rate_of(each, dtype, a, b) : 0;
        row.push_back(rate > 0 ? fmt::format("{:.1f}", rate) : "-");
      }
    }
  }
  std::string text = "# a = a + b on one core, GB/s of the result\n" + cluster::table_text(rows);
  for (const Implementation& each : ways) {
    if (!each.missing.empty()) text += fmt::format("# {}: {}\n", each.name, each.missing);
  }
  text +=
      "# accelerate=true computes sums of f32 with Accelerate; reduce_on=gpu computes sums of "
      "16-bit floats on the GPU\n";
  return text;
}

}  // namespace mccl::cli::bench
