#include "backend/native/units.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/value_text.h"
#include "kernels/unit.h"
#include "mccl/error.h"

namespace mccl::native {
namespace {

/// A unit that passes each reduction to the first of several units that supports it.
class Several final : public kernels::Unit {
 public:
  explicit Several(std::vector<std::shared_ptr<kernels::Unit>> units) : units_(std::move(units)) {}

  bool reduce(DType dtype, ReduceKind kind, const void* a, const void* b, void* dst,
              std::size_t n) override {
    return std::ranges::any_of(
        units_, [&](const auto& unit) { return unit->reduce(dtype, kind, a, b, dst, n); });
  }

 private:
  const std::vector<std::shared_ptr<kernels::Unit>> units_;
};

}  // namespace

std::shared_ptr<kernels::Unit> units_of(const Config& config) {
  // The path of the shaders is checked even if it is not used, because a file that a setting names
  // must exist.
  if (!config.shader_path.empty() && ::access(config.shader_path.c_str(), R_OK) != 0) {
    throw InvalidArgument(
        fmt::format("MCCL_SHADER_PATH: cannot read the file of Metal shaders {}: {}; correct the "
                    "path, or unset MCCL_SHADER_PATH to use the shaders of the package",
                    in_quotes(config.shader_path), std::strerror(errno)));
  }
  std::vector<std::shared_ptr<kernels::Unit>> units;
  if (config.reduce_on == "gpu") {
    units.push_back(
        kernels::make_reducer({config.fast_math, config.shader_path, config.gpu_threshold}));
  }
  if (config.accelerate) units.push_back(kernels::make_accelerate());
  if (units.size() < 2) return units.empty() ? nullptr : units.front();
  return std::make_shared<Several>(std::move(units));
}

}  // namespace mccl::native
