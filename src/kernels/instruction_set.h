// Selects the instruction set that the kernels use.
#pragma once

#include <string_view>
#include <vector>

namespace mccl::kernels {

/// Highway's name of the instruction set in use: "AVX2", "AVX3" (AVX-512), "NEON", "SCALAR", …
std::string_view instruction_set();

/// All instruction sets that this build contains and this machine can run, the best first.
std::vector<std::string_view> instruction_sets();

/// For tests and measurements: switches to one of instruction_sets(). An empty name restores the
/// best. Every set gives the same bits. Throws InvalidArgument if the name is not available.
void use_instruction_set(std::string_view name);

}  // namespace mccl::kernels
