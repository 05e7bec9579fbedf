// Compiles the kernels for Mac GPUs for the host.
#include "kernels/metal/reduce_on_host.h"

#include <map>
#include <stdexcept>

#define __METAL_VERSION__ 300  // NOLINT(bugprone-reserved-identifier)
#include "kernels/metal/reduce.metal"
#undef kernel
#undef device
#undef constant

namespace mccl::testing {

void run_on_host(const std::string& name, const std::uint16_t* a, const std::uint16_t* b,
                 std::uint16_t* out, std::uint32_t count) {
  using Kernel = void (*)(const std::uint16_t*, const std::uint16_t*, std::uint16_t*,
                          const std::uint32_t&, std::uint32_t);
  static const std::map<std::string, Kernel> kernels = {
      {"mccl_sum_f16", &mccl_sum_f16},         {"mccl_sum_bf16", &mccl_sum_bf16},
      {"mccl_product_f16", &mccl_product_f16}, {"mccl_product_bf16", &mccl_product_bf16},
      {"mccl_min_f16", &mccl_min_f16},         {"mccl_min_bf16", &mccl_min_bf16},
      {"mccl_max_f16", &mccl_max_f16},         {"mccl_max_bf16", &mccl_max_bf16}};
  const auto found = kernels.find(name);
  if (found == kernels.end()) throw std::invalid_argument("no kernel " + name);
  for (std::uint32_t at = 0; at < count; ++at) found->second(a, b, out, count, at);
}

}  // namespace mccl::testing
